"""`attnknn embed`."""

from pathlib import Path

import typer

from attnknn.app.commands.arguments import CLUSTER, FORCE, check_output, check_stdin
from attnknn.core.errors import require


def embed(
    inputs: list[str] = typer.Argument(help="Pictures, or folders of pictures; - is standard input."),
    encoder: str = typer.Option(
        ..., help="Folder of an encoder of the pipeline, torchvision:NAME such as torchvision:resnet50, or onnx:FILE."
    ),
    weights: Path = typer.Option(None, help="For torchvision:NAME: the file of the model's weights."),
    output: str = typer.Option(
        ..., "--output", "-o", help="A .npy file; or a folder, or address as s3://…, of Parquet files."
    ),
    cluster: str = CLUSTER,
    force: bool = FORCE,
) -> None:
    """Embed pictures, with their paths and the names of their folders as labels.

    z.npy gets a row a picture, and z.csv beside it the columns label and path. Parquet files have the columns vector,
    label and path, and after an interruption the same command goes on where it stopped.
    """
    check_stdin(inputs)
    is_array = output.lower().endswith(".npy")
    if is_array:
        require(cluster is None, f"--cluster: {output} is written by this process; name a folder")
        files = [Path(output), Path(output).with_suffix(".csv")]
        for path in files:
            check_output(path, Path(encoder), inputs, force)
    from attnknn.app.model.read_files import image_files

    images = list(image_files(inputs))
    if is_array:
        _embed_to_array(images, encoder, weights, *files)
    else:
        from attnknn.app.parts import embed_images

        embed_images(encoder, weights, images, output, cluster)


def _embed_to_array(images: list[Path], encoder: str, weights: Path | None, output: Path, rows: Path) -> None:
    import numpy as np
    from tqdm import tqdm

    from attnknn.app.model.embedders import BATCH, open_embedder
    from attnknn.core.files import atomic_file, write_csv

    embedder, z = open_embedder(encoder, weights), []
    with tqdm(desc="embed", total=len(images), unit=" pictures", delay=2, disable=None) as bar:
        for start in range(0, len(images), BATCH):
            z.append(embedder(images[start : start + BATCH]))
            bar.update(len(z[-1]))
    vectors = np.concatenate(z)
    with atomic_file(output) as draft, draft.open("wb") as file:
        np.save(file, vectors)
    paths = [path.absolute() for path in images]
    write_csv(rows, [{"label": path.parent.name, "path": str(path)} for path in paths])
    typer.echo(f"{output}: {len(vectors):,} vectors of {vectors.shape[1]} numbers; their labels and paths: {rows}")
    typer.echo(f"next: attnknn fit {output} --rows {rows} --target label --pictures path -o MODEL")

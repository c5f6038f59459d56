"""`attnknn embed`."""

from pathlib import Path

import typer

from attnknn.app.commands.arguments import CLUSTER, check_stdin
from attnknn.core.errors import require


def embed(
    encoder: Path = typer.Argument(help="Folder of an encoder: weights.safetensors and config.json."),
    inputs: list[str] = typer.Argument(help="Pictures, or folders of pictures; - is standard input."),
    output: str = typer.Option(..., "--output", "-o", help="Folder, or address as s3://…, of Parquet files."),
    cluster: str = CLUSTER,
) -> None:
    """Embed pictures: columns vector, label (name of the picture's folder) and path, in Parquet files.

    Again after an interruption, it goes on where it stopped.
    """
    check_stdin(inputs)
    weights = encoder / "weights.safetensors"
    require(weights.is_file(), f"{encoder}: no encoder; give a folder with weights.safetensors and config.json")
    from attnknn.app.model.read_files import image_files
    from attnknn.app.parts import embed_images

    embed_images(encoder, list(image_files(inputs)), output, cluster)

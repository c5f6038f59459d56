"""Reconstructions by fields (PSNR, pictures), training curves, and t-SNE of the representations."""

from pathlib import Path

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, read_json, write_csv, write_json
from attnknn.experiments.fields.variants import REPORT_TABLES, trained_variants, training_table
from stages.params import read_params, run


def main(dataset: str, seed: int, split: Path, fields: Path, latents: Path, encoder: Path, plots: Path) -> None:
    """Read SPLIT, FIELDS, LATENTS and ENCODER; write tables and pictures under PLOTS."""
    p = read_params(dataset, "probe", "explain.perplexity", "evaluate.confidence", "device", "threads")
    summary = read_json(latents / "latents.json")
    rows, columns = {}, []
    with atomic_folder(plots / "field_pictures" / f"{dataset}-{seed}") as draft:
        if variants := summary["variants"]:
            # These import torch, which tables do not need.
            from attnknn.core.device import n_workers, use_device
            from attnknn.encoder.encoder import Encoder
            from attnknn.experiments.fields.fidelity import image_grid, psnr_table, reconstructions
            from attnknn.experiments.fields.maps import maps
            from attnknn.experiments.fields.representations import Representations

            device = use_device(p.device, p.threads)
            data, embed = Split.load(split), Encoder.load(encoder)[0]
            context = summary["share"], summary["least"]
            representations = Representations(data, latents, embed, *context, patch=1, seed=seed)
            errors, pictures = reconstructions(representations, fields, variants, p.probe.pictures, device)
            columns, grid = image_grid(pictures)
            grid.save(draft / "reconstructions.png", optimize=True)
            tsne = p.probe.tsne_rows, p.explain.perplexity, n_workers(device, p.threads)
            rows = {
                "field_psnr": psnr_table(errors, p.probe.resamples, p.evaluate.confidence, seed),
                "field_training": training_table(trained_variants(fields)),
                "field_tsne": maps(representations, variants, *tsne),
            }
        write_json(draft / "pictures.json", {"columns": columns})
    for name, names in REPORT_TABLES.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", rows.get(name, []), names)


if __name__ == "__main__":
    run(main)

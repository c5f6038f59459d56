"""What the report shows of fields: how true their reconstructions are, pictures of some, and how latents lie."""

from pathlib import Path

from attnknn.core.files import atomic_folder, read_json, write_csv, write_json
from stages.params import read_params, run

PSNR = ("mode", "source", "baseline", "value", "low", "high")
TRAINING = ("variant", "epoch", "loss", "mse", "contrast", "val_psnr")


def main(dataset: str, seed: int, split: Path, fields: Path, latents: Path, encoder: Path, plots: Path) -> None:
    """Read SPLIT, FIELDS, LATENTS and ENCODER; write tables under PLOTS, and pictures."""
    p = read_params(dataset, "probe", "explain.perplexity", "evaluate.confidence", "device", "threads")
    item, quality, places, training, strip = f"{dataset}-{seed}", [], [], [], None
    if variants := (about := read_json(latents / "latents.json"))["variants"]:
        # What needs torch is imported here: with no field, as for tables, the stage takes no time.
        from attnknn.core.artifacts import Split
        from attnknn.core.device import n_workers, use_device
        from attnknn.encoder.encoder import Encoder
        from attnknn.experiments.fields.fidelity import psnr_table, reconstructions, strips
        from attnknn.experiments.fields.maps import maps

        data, device = Split.load(split), use_device(p.device, p.threads)
        known = {"share": about["share"], "least": about["least"], "seed": seed}
        errors, pictures = reconstructions(data, fields, latents, variants, p.probe.pictures, device, **known)
        quality = psnr_table(errors, p.probe.resamples, p.evaluate.confidence, seed)
        strip = strips(pictures)
        shown = {"rows": p.probe.tsne_rows, "perplexity": p.explain.perplexity, "seed": seed}
        embed = Encoder.load(encoder)[0]
        places = maps(data, latents, variants, embed, known, n_workers(device, p.threads), **shown)
        for name in variants:
            history = read_json(fields / name / "trained.json")["history"]
            training += [dict.fromkeys(TRAINING) | {"variant": name, **row} for row in history]
    with atomic_folder(plots / "field_pictures" / item) as draft:
        write_json(draft / "pictures.json", {"columns": [] if strip is None else strip[0]})
        if strip is not None:
            strip[1].save(draft / "reconstructions.png", optimize=True)
    write_csv(plots / "field_psnr" / f"{item}.csv", quality, PSNR)
    write_csv(plots / "field_training" / f"{item}.csv", training, TRAINING)
    write_csv(plots / "field_tsne" / f"{item}.csv", places, ("representation", "x", "y", "actual"))


if __name__ == "__main__":
    run(main)

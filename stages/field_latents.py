"""Latents of every image by every field, of all of it and of a few of its points."""

from pathlib import Path

from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, read_json, write_json
from stages.params import read_params, run


def main(dataset: str, seed: int, split: Path, fields: Path, out: Path) -> None:
    """Read SPLIT and FIELDS; write a folder a field and mode to OUT, or none where no field was trained."""
    p = read_params(dataset, "device", "threads")
    require(fields.is_dir(), f"{fields}: no such folder; run `dvc repro`")
    found = {path.parent.name: read_json(path) for path in sorted(fields.glob("*/trained.json"))}
    trained = {name: about for name, about in found.items() if about["size"] != "none"}
    with atomic_folder(out) as draft:
        same = {key: about[key] for about in trained.values() for key in ("size", "share", "least")}
        write_json(draft / "latents.json", {"variants": list(trained), **same})
        if not trained:
            print(f"field_latents {dataset}/{seed}: there are no fields")
            return
        # What needs torch is imported here: with no field, as for tables, the stage takes no time.
        import torch

        from attnknn.core.artifacts import Split
        from attnknn.core.device import use_device
        from attnknn.experiments.fields.encoding import latents_of
        from attnknn.experiments.fields.latents import MODES, Latents, known_points
        from attnknn.experiments.fields.perceiver import Field

        data, device = Split.load(split), use_device(p.device, p.threads)
        pixels = data.x.shape[2] * data.x.shape[3]
        for name, about in trained.items():
            field, _ = Field.load(fields / name / "field")
            for mode in MODES:
                at = known_points(mode, len(data.x), pixels, about["share"], about["least"], seed)
                tokens = latents_of(field, data.x, at, device, about["bf16"], dtype=torch.float16)
                Latents(tokens.numpy(), name, mode).save(draft / name / mode)


if __name__ == "__main__":
    run(main)

"""Latents of every image by every field, of all of it and of a few of its points."""

from pathlib import Path

from attnknn.files import new_folder, read_json, write_json
from stages.params import read_params, run


def main(dataset: str, seed: int, split: Path, fields: Path, out: Path) -> None:
    """Read SPLIT and FIELDS; write a folder a field and mode to OUT, or none where no field was trained."""
    p = read_params(dataset, "train_field", "device", "threads")
    found = sorted(folder.parent.name for folder in fields.glob("*/trained.json"))
    trained = [name for name in found if read_json(fields / name / "trained.json")["trained"]]
    with new_folder(out) as draft:
        write_json(draft / "latents.json", {"variants": trained})
        if not trained:
            print(f"field_latents {dataset}/{seed}: there are no fields")
            return
        # What needs torch is imported here: with no field, as for tables, the stage takes no time.
        from attnknn.artifacts import Split
        from attnknn.device import use_device
        from attnknn.fields.encoding import latents_of
        from attnknn.fields.latents import MODES, Latents, known_points
        from attnknn.fields.perceiver import Field

        data, device, size = Split.load(split), use_device(p.device, p.threads), p.train_field.sizes[p.train_field.size]
        pixels = data.x.shape[2] * data.x.shape[3]
        for name in trained:
            field, _ = Field.load(fields / name / "field")
            for mode in MODES:
                at = known_points(mode, len(data.x), pixels, p.train_field.share, size.least, seed)
                tokens = latents_of(field, data.x, at, device, size.bf16).half().numpy()
                Latents(tokens, name, mode).save(draft / name / mode)


if __name__ == "__main__":
    run(main)

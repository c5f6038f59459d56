"""Train a field on the bank's images, without labels."""

from pathlib import Path
from types import SimpleNamespace

from attnknn.core.artifacts import Split
from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.fields.variants import FROM_SCRATCH
from stages.params import read_params, run


def train(p: SimpleNamespace, variant: str, seed: int, split: Path, start: Path | None, state: Path, out: Path) -> None:
    """Write the field to OUT; only a summary if SPLIT holds a table or the size is none."""
    data = Split.load(split)
    with atomic_folder(out) as draft:
        if p.train_field.size == "none" or not data.is_image:
            write_json(draft / "trained.json", {"size": "none", "history": []})
            print(f"field {variant}: nothing to train, {'train_field.size is none' if data.is_image else 'no images'}")
            return
        from attnknn.experiments.fields.train import train_variant  # imports torch, which tables do not need

        settings = p.train_field.model_dump()
        field, summary = train_variant(data, variant, settings, seed, p.device, p.threads, state, start)
        field.save(draft / "field")
        write_json(draft / "trained.json", summary)
    state.unlink(missing_ok=True)


def main(dataset: str, seed: int, variant: str, split: Path, state: Path, out: Path) -> None:
    """Read SPLIT; write the field to OUT; STATE is the checkpoint to resume from."""
    require(variant in FROM_SCRATCH, f"variant: {variant}; give one of {', '.join(FROM_SCRATCH)}")
    train(read_params(dataset, "train_field", "device", "threads"), variant, seed, split, None, state, out)


if __name__ == "__main__":
    run(main)

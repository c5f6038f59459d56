"""Fine-tune the field of sparse contexts with the contrastive loss: `sparse_nce`."""

from pathlib import Path

from stages.params import read_params, run
from stages.train_field import train


def main(dataset: str, seed: int, split: Path, start: Path, state: Path, out: Path) -> None:
    """Read SPLIT and the field of START; write the field to OUT; STATE is the checkpoint to resume from."""
    p = read_params(dataset, "train_field", "device", "threads")
    train(p, "sparse_nce", seed, split, start / "field", state, out)


if __name__ == "__main__":
    run(main)

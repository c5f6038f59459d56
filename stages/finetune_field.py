"""Train the field of sparse contexts on, with the contrastive loss beside reconstruction: `sparse_nce`."""

from pathlib import Path

from stages.params import read_params, run
from stages.train_field import train


def main(dataset: str, seed: int, split: Path, start: Path, state: Path, out: Path) -> None:
    """Read SPLIT and the field of START; write the field to OUT; STATE is the place to resume from."""
    train(read_params(dataset, "train_field", "device", "threads"), "sparse_nce", seed, split, start, state, out)


if __name__ == "__main__":
    run(main)

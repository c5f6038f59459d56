"""Split a data set into bank, fit, val and test rows: `python stages/prepare.py DATASET SEED RAW OUT`."""

from pathlib import Path

from params import read_params, run

from attnknn.datasets import prepare


def main(dataset: str, seed: int, raw: Path, out: Path) -> None:
    """Make the `Split` of DATASET from the files in RAW and save it to OUT."""
    p = read_params(dataset, "sources", "prepare")
    shares = p.prepare
    split = prepare(p.sources, raw, seed, test=shares.test, val=shares.val, fit=shares.fit, subset=shares.subset)
    split.save(out)


if __name__ == "__main__":
    run(main)

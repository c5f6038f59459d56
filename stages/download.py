"""Fetch the raw files of a data set: `python -m stages.download DATASET OUT`."""

import os
from pathlib import Path

from attnknn.data.download import download
from stages.params import read_params, run


def main(dataset: str, out: Path) -> None:
    """Put the files of DATASET, as its source publishes them, into the folder OUT."""
    p = read_params(dataset, "sources", "mirror")
    download(p.sources, out, os.environ.get("ATTNKNN_MIRROR") or p.mirror)


if __name__ == "__main__":
    run(main)

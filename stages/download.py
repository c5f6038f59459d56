"""Fetch the raw files of a dataset, from the mirror first."""

import os

from attnknn.data.download import download as fetch
from pipeline.run import Run, main


def download(run: Run) -> None:
    p = run.params
    fetch(p.source, run.path("data/raw"), os.environ.get("ATTNKNN_MIRROR") or p.mirror)


if __name__ == "__main__":
    main(download)

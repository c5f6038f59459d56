"""Build the memory: an index over the embeddings of the bank rows."""

from pathlib import Path

from attnknn.core.artifacts import Embeddings
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import memory
from stages.params import read_params, run


def main(dataset: str, embeddings: Path, out: Path) -> None:
    """Read EMBEDDINGS; write index and row ids to OUT."""
    p = read_params(dataset, "build_index", "threads")
    set_threads(p.threads)
    memory(Embeddings.load(embeddings), **p.build_index.model_dump()).save(out)


if __name__ == "__main__":
    run(main)

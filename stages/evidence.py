"""What is known of each bank row beyond distance, once for all heads."""

from pathlib import Path

from attnknn.core.artifacts import Embeddings, Neighbours
from attnknn.neighbours.statistics import neighbour_statistics
from stages.params import read_params, run


def main(dataset: str, embeddings: Path, neighbours: Path, out: Path) -> None:
    """Read EMBEDDINGS and NEIGHBOURS; write the evidence to OUT."""
    p = read_params(dataset, "evidence")
    neighbour_statistics(Embeddings.load(embeddings), Neighbours.load(neighbours), p.evidence.sizes).save(out)


if __name__ == "__main__":
    run(main)

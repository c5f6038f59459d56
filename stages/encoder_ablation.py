"""Encoders trained otherwise, each beside the configured one: what the parts of the encoder are worth to its kNN."""

from pathlib import Path

from attnknn.core.device import use_device
from attnknn.core.files import read_json, write_csv
from attnknn.evaluation.paired_tests import BESIDE, side_by_side
from attnknn.experiments.refit import fit_and_compare
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run

METHODS = ("distance", "distance_vector", "attention", "linear_temperature")


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, variants: Path, table: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE of the configured encoder, and VARIANTS; write TABLE, empty without any."""
    p = read_params(dataset, "train_attention", "tune", "evaluate", "k_eval", "k_train", "device", "threads")
    names = read_json(variants / "variants.json")["variants"]
    if not names:
        return write_csv(table, [], BESIDE)
    device = use_device(p.device, p.threads)
    spaces = {"configured": EmbeddingSpace.load(embeddings, neighbours, evidence)}
    spaces |= {name: EmbeddingSpace.load_whole(variants / str(place)) for place, name in enumerate(names)}
    fitting, grids = p.train_attention.model_dump(), p.tune.model_dump()
    found = {
        name: fit_and_compare([space], p.k_train, p.k_eval, fitting, grids, seed, device).test
        for name, space in spaces.items()
    }
    write_csv(table, side_by_side(found, METHODS, p.evaluate.model_dump(), seed), BESIDE)


if __name__ == "__main__":
    run(main)

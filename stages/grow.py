"""The memory takes fit and val rows too, once everything is tuned: what more examples bring without training."""

from pathlib import Path

from attnknn.core.device import use_device
from attnknn.core.files import write_csv
from attnknn.evaluation.evaluate import compare
from attnknn.evaluation.paired_tests import BESIDE, side_by_side
from attnknn.heads.registry import load_head
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import with_larger_bank
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run

METHODS = ("uniform", "distance", "distance_vector", "attention", "prototypes")


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, heads: Path, table: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, FOLDS and HEADS; write TABLE, the grown memory beside the bank alone."""
    p = read_params(dataset, "evaluate", "tune", "build_index", "evidence", "k_eval", "k_max", "device", "threads")
    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    fitted = {name: load_head(heads / name).to(device) for name in ("attention", "prototypes")}
    more = with_larger_bank(spaces[0].embeddings, p.k_max, p.evidence.sizes, p.build_index.metric, device)
    settings = p.tune.model_dump() | {"calibrations": ("vector",), "device": device}
    of = {
        name: compare(spaces, fitted, p.k_eval, **settings, memory=memory).test
        for name, memory in (("grown", more), ("bank", None))
    }
    write_csv(table, side_by_side(of, METHODS, p.evaluate.model_dump(), seed), BESIDE)


if __name__ == "__main__":
    run(main)

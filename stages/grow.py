"""A memory that takes fit and val rows too, once everything is tuned, beside the bank."""

from attnknn.evaluation.evaluate import compare
from attnknn.evaluation.paired_tests import BESIDE, side_by_side
from attnknn.neighbours.search import with_larger_bank
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main
from pipeline.search import search_settings

METHODS = ("uniform", "distance", "distance_vector", "attention", "prototypes")


def grow(run: Run) -> None:
    p, spaces, heads = run.params, load_spaces(run), load_heads(run, "attention", "prototypes")
    larger = with_larger_bank(spaces[0].embeddings, **search_settings(run))
    k = min(max(p.tune.ks), *(space.neighbours.ids.shape[1] for space in spaces))
    settings = p.tune.model_dump() | {"calibrations": ("vector",), "device": run.device}
    predictions = {
        name: compare(spaces, heads, k, **settings, memory=memory).test
        for name, memory in (("grown", larger), ("bank", None))
    }
    run.write_tables({"grow": BESIDE}, grow=side_by_side(predictions, METHODS, p.evaluate.model_dump(), run.seed))


if __name__ == "__main__":
    main(grow)

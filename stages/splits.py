"""Means, deviations and tests of every method over repeated splits."""

from functools import partial

from attnknn.core.files import read_json
from attnknn.experiments.repeats import COLUMNS, PAIRED, compare_split, over_splits
from pipeline.run import Run, main


def splits(run: Run) -> None:
    p, folder, table, paired = run.params, run.path("data/splits"), [], []
    splits = read_json(folder / "splits.json")
    if splits["seeds"]:
        from attnknn.core.parallel import run_parallel  # imports torch, which larger tables and images do not need

        settings = run.fit_settings(p.splits.k or p.k_train)
        calls = [partial(compare_split, folder / str(seed), seed, **settings) for seed in splits["seeds"]]
        results = run.track("split")(run_parallel(calls, run.workers), total=len(calls))
        predictions = dict(zip(splits["seeds"], results, strict=True))
        table, paired = over_splits(predictions, splits["rows"], p.evaluate.bins, p.evaluate.confidence)
    run.write_tables({"splits": COLUMNS, "splits_paired": PAIRED}, splits=table, splits_paired=paired)


if __name__ == "__main__":
    main(splits)

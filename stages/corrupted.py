"""Compare all methods where everything was trained, fitted and tuned on wrong labels or rare classes."""

from attnknn.core.artifacts import Split
from attnknn.experiments.trained_on_corruption import COLUMNS, compare_trained
from pipeline.run import Run, main


def corrupted(run: Run) -> None:
    p = run.params
    folders = {name: run.path("data/train_corrupted") / name for name in p.train_corrupted.conditions}
    clean = Split.load(run.path("data/split")).y
    scores, tables = compare_trained(folders, clean, p.evaluate.model_dump(), run.seed, **run.fit_settings(p.k_train))
    for name, values in scores.items():
        run.write_metrics(values, name)
    run.write_tables(COLUMNS, **tables)


if __name__ == "__main__":
    main(corrupted)

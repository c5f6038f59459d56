"""Rows unlike those of the memory: new classes, novelty, and images that change over time."""

from collections.abc import Sequence

from attnknn.report.results import Run
from attnknn.report.tables import Cell, Row, Section, Table, fixed, interval, p_value

_CLASSIFIERS = {
    "class_means": "class means",
    "random_features": "ridge on random features",
    "logistic": "logistic",
    "balanced_logistic": "balanced logistic",
    "nearest": "nearest neighbour",
}
_SCORES = {
    "max_softmax": "maximum softmax",
    "energy": "energy",
    "mahalanobis": "Mahalanobis",
    "deep_knn_1": "deep kNN, k 1",
    "deep_knn_10": "deep kNN, k 10",
    "deep_knn_50": "deep kNN, k 50",
    "vim": "ViM",
}


def _by_run(runs: Sequence[Run], name: str) -> list[tuple[str, Run]]:
    """Runs with results of a stage, each with its title."""
    several = {run.dataset for run in runs if len({r.seed for r in runs if r.dataset == run.dataset}) > 1}
    present = [run for run in runs if run.json.get(name, {}).get("conditions")]
    return [(f"{run.dataset}{f', seed {run.seed}' if run.dataset in several else ''}", run) for run in present]


def _difference(row: dict[str, float]) -> list[Cell | str]:
    if row["p"] is None:
        return [Cell(fixed(row["difference"], 3, True), ""), ""]
    return [Cell(fixed(row["difference"], 3, True), interval(row, 3, True)), p_value(row["p"])]


def new_classes(runs: Sequence[Run]) -> Section:
    rows: list[Row] = []
    for title, run in _by_run(runs, "new_classes"):
        rows.append([title])
        for condition, row in run.json["new_classes"]["conditions"].items():
            accuracy = [fixed(row[name], 3) for name in ("new_accuracy", "old_accuracy", "loss")]
            nll = [Cell(fixed(row[f"{kind}_nll"], 3), fixed(row[f"other_{kind}_nll"], 3)) for kind in ("new", "old")]
            harmonic = [fixed(row[f"{name}harmonic"], 3) for name in ("", "balanced_", "other_", "means_", "again_")]
            rows.append([condition, *accuracy, *nll, *harmonic, _CLASSIFIERS[row["other"]], *_difference(row)])
    head = ["rows of each", "accuracy, new", "accuracy, old", "loss of old", "NLL, new: ours (other)"]
    head += [
        "NLL, old: ours (other)",
        "harmonic mean: ours",
        "ours, balanced weights",
        "best other",
        "class means",
        "fitted again",
        "best other is",
    ]
    head += ["difference", "p"]
    return Section(
        "new_classes",
        "New classes",
        "Encoder and head saw no label of a fifth of the classes; rows of them are added to the memory without a fit. "
        "Beside classifiers fitted on all rows, the best in the harmonic mean of accuracies on new and old classes, "
        "chosen on these results. Intervals and p over repeats.",
        [],
        [Table("new_classes", "Rows of new classes added to the memory", head, rows, folded=False)] if rows else [],
        "dvc exp run -S '+new_classes.rows=[50]'",
    )


def novelty(runs: Sequence[Run]) -> Section:
    rows: list[Row] = []
    for title, run in _by_run(runs, "novelty"):
        rows.append([title])
        for condition, row in run.json["novelty"]["conditions"].items():
            auroc = Cell(fixed(row["auroc"], 3), fixed(row["other_auroc"], 3))
            fpr = Cell(fixed(row["fpr95"], 3), fixed(row["other_fpr95"], 3))
            others = _SCORES[row["other"]], fixed(row["softmax_auroc"], 3)
            rejected = [fixed(row[name], 3) for name in ("rejected", "rejected_novel")]
            rows.append([condition, auroc, fpr, *others, *_difference(row), *rejected])
    head = ["novel rows", "AUROC: ours (other)", "false positives at 95 %: ours (other)", "best other"]
    head += [
        "AUROC of maximum softmax",
        "difference in AUROC",
        "p",
        "usual rows with p ≤ .05",
        "novel rows with p ≤ .05",
    ]
    return Section(
        "novelty",
        "Novelty",
        "Rows of classes of which encoder and memory saw no label (two fifths, none of two), and usual rows with each "
        "value taken from another one, are told from usual rows by `novelty`. The best of seven other scores is chosen "
        "on these results. Intervals and p over repeats.",
        [],
        [Table("novelty", "Novelty beside other scores", head, rows, folded=False)] if rows else [],
        "dvc exp run -S '+novelty.repeats=5'",
    )


def drift(runs: Sequence[Run]) -> Section:
    rows: list[Row] = []
    for title, run in _by_run(runs, "drift"):
        rows.append([title])
        for condition, row in run.json["drift"]["conditions"].items():
            own = [fixed(row[f"{name}_accuracy"], 3) for name in ("no labels", "partial_fit", "partial_fit, newest")]
            scores = [fixed(row[name], 3) for name in ("accuracy", "other_accuracy")]
            nll = Cell(fixed(row["nll"], 3), fixed(row["other_nll"], 3))
            last = Cell(fixed(row["last_accuracy"], 3), fixed(row["other_last_accuracy"], 3))
            other = row["other"].replace("_", " ").replace("sgd", "SGD")
            rows.append([condition, *own, *scores, other, *_difference(row), nll, last])
    head = ["change, late labels", "no labels", "added", "newest kept", "added, older fading", "best other"]
    head += ["best other is", "difference", "p", "NLL: ours (other)", "accuracy in the last step: ours (other)"]
    return Section(
        "drift",
        "Images that change over time",
        "Test images, more changed from step to step, are answered before labels of others of the step are added to "
        "the memory, which holds unchanged ones. Accuracy, a mean over steps. Other classifiers are fitted again on "
        "all rows, on the newest, or on all with older ones fading; the best is chosen on these results, settings on "
        "the labels received until then. Intervals and p over repeats, of which two share half of the answered "
        "images.",
        [],
        [Table("drift", "Late labels of changing images", head, rows, folded=False)] if rows else [],
        "dvc exp run -S '+drift.labels=[500]'",
    )

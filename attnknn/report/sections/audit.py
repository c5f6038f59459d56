"""Finding wrong labels, beside cleanlab."""

from collections.abc import Sequence

from attnknn.report.results import Run
from attnknn.report.tables import Cell, Row, Section, Table, fixed, interval, p_value

_SCORES = {
    "average_precision": "average precision",
    "precision_at_100": "precision of the first 100",
    "f1": "F1 of flagged",
}
_CLASSIFIERS = {"logistic": "logistic", "rbf": "RBF logistic", "boosting": "boosting", "mlp": "MLP"}
_CLASSIFIERS |= {"knn_10": "10 neighbours", "knn_50": "50 neighbours"}


def _name(other: str) -> str:
    classifier, ranking = other.split(", ")
    return f"{_CLASSIFIERS[classifier]}, {ranking.replace('_', ' ')}"


def audit(runs: Sequence[Run]) -> Section:
    main: list[Row] = []
    expected: list[Row] = []
    cleaned: list[Row] = []
    for run in runs:
        conditions = run.json.get("audit", {}).get("conditions")
        if not conditions:
            continue
        seed = f", seed {run.seed}" if len({r.seed for r in runs if r.dataset == run.dataset}) > 1 else ""
        for rows in (main, expected):
            rows.append([f"{run.dataset}{seed}, {run.json['audit']['rows']:,} rows"])
        for condition, row in conditions.items():
            pairs = [Cell(fixed(row[s], 3), f"{fixed(row[f'other_{s}'], 3)}") for s in _SCORES]
            difference = Cell("", "")
            if row["p"] is not None:
                difference = Cell(fixed(row["difference"], 3, True), interval(row, 3, True))
            if row.get("cleaning_p") is not None:
                change = {name: row[f"cleaning_{name}"] for name in ("low", "high")}
                accuracies = [fixed(row[f"accuracy_{name}"], 3) for name in ("given", "cleaned", "right")]
                gain = Cell(fixed(row["cleaning_difference"], 3, True), interval(change, 3, True))
                cleaned.append([f"{run.dataset}{seed}, {condition}", *accuracies, gain, p_value(row["cleaning_p"])])
            main.append([condition, *pairs, _name(row["other"]), difference, p_value(row["p"] or float("nan"))])
            pairs = [(row["expected_precision"], row["precision"]), (row["expected_wrong"], row["wrong"])]
            expected.append([condition, *(fixed(value, 3) for pair in pairs for value in pair)])
    head = ["wrong labels", *(f"{name}: ours (cleanlab)" for name in _SCORES.values())]
    head += ["best of cleanlab", "difference in average precision", "p"]
    counts = ["wrong labels", "expected precision of the first half", "true", "expected share of wrong labels", "true"]
    labels = ["wrong labels", "labels as given", "flagged ones replaced", "right labels", "gain by replacing", "p"]
    tables = [
        Table("label_issues", "find_label_issues beside the best of cleanlab", head, main, folded=False),
        *([Table("cleaning", "Accuracy of a logistic regression on test rows", labels, cleaned)] if cleaned else []),
        Table("expected", "What find_label_issues expects", counts, expected),
    ]
    return Section(
        "audit",
        "Finding wrong labels",
        "Labels of rows that the encoder was not trained on are made wrong and looked for; of cleanlab with six "
        "classifiers and two scores, the one of highest average precision is shown, chosen on these results. Intervals "
        "and p over repeats.",
        [],
        tables if main else [],
        "dvc exp run -S '+audit.rates=[0.05]'",
    )

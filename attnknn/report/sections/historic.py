"""The historic study: its conclusions tested on our runs, and its numbers beside ours.

`historic.csv` holds the study's numbers as its documents state them: one run each, without intervals. `conclusions.csv`
holds its conclusions and the difference that tests each: rows of `table` (with `:difference`, their differences
attention − method) with the column values `rows`. No paired comparison is stored for three of them: there it is the
score in these rows less that in the rows of `less_table` with the values `less`. A conclusion is supported where
sign · difference lies above `least`, and contradicted where it lies below `margin`; one of equality, without a sign, is
supported where the interval lies within ± `margin`, and contradicted where all of it lies outside. None rests on a
head that did not train.
"""

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pandas as pd

from attnknn.evaluation.opponents import ROLES
from attnknn.evaluation.paired_tests import combined_p
from attnknn.report.names import METRICS, method_name
from attnknn.report.results import Run, by_dataset, differences, joined
from attnknn.report.tables import Cell, Row, Section, Table, fixed, interval
from attnknn.report.verdicts import ALPHA, FEWEST_ERRORS, too_few

SHOWN = ("accuracy", "nll", "ece")
NAMES = {"attention_tta": "Attention + TTA", "attention_ensemble": "Attention + k-ensemble"}
_OF_ATTENTION = ("intervals:difference", "ensemble_paired", "tta_paired")  # by the head that train_attention fitted


def verdict(low: float, high: float, p: float, sign: int, least: float, margin: float) -> str:
    """supported, contradicted or undecided, by the rule above; an interval with p ≥ .01 holds 0."""
    if p >= ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    if not sign:
        outside = low > margin or high < -margin
        return "supported" if -margin < low and high < margin else "contradicted" if outside else "undecided"
    low, high = sorted((sign * low, sign * high))
    return "supported" if low > least else "contradicted" if high < margin else "undecided"


def _rule(claim: dict[Any, Any]) -> str:
    """What supports and what contradicts a conclusion."""
    margin = f"{claim['margin']:g}".replace("-", "−")
    if not claim["sign"]:
        return f"within ±{margin}"
    above, below = (">", "<") if claim["sign"] > 0 else ("<", ">")
    least, margin = (f"{claim['sign'] * claim[key] + 0:g}".replace("-", "−") for key in ("least", "margin"))
    return f"supported {above} {least}, contradicted {below} {margin}"


def rows_where(runs: Sequence[Run], table: str, where: str) -> pd.DataFrame:
    """The rows of a table (with `:difference`, its differences) with these column values, of all views if any."""
    table, _, difference = table.partition(":")
    rows = joined(runs, table)
    if "role" in rows:
        rows = rows if "role=" in where else rows[~rows["role"].isin(list(ROLES))]
        rows = differences(rows) if difference else rows.drop(columns=["difference", "p", "errors"])
    for condition in where.split("; ") if len(rows) else ():
        column, _, value = condition.partition("=")
        rows = rows[rows[column].astype(str) == value]
    return rows[rows["views"] == rows["views"].max()] if "views" in rows else rows


def _measured(runs: Sequence[Run], table: str, where: str) -> dict[str, float] | None:
    """Mean, outer ends, combined p (NaN without one) and fewest errors of these rows; None without any.

    Errors are those of the comparison or, where the table has none, of the method itself.
    """
    rows = rows_where(runs, table, where)
    if rows.empty:
        return None
    values = rows["difference" if "difference" in rows else "value"]
    p = combined_p(rows["p"].tolist()) if "p" in rows else float("nan")
    if "errors" in rows:
        errors = rows["errors"].min()
    elif "metric" in rows:
        errors = _wrong(runs, rows_where(runs, table, re.sub("metric=[a-z]+", "metric=accuracy", where)))
    else:
        errors = _wrong(runs, rows_where(runs, "intervals", "method=attention; metric=accuracy"))
    return {
        "difference": float(values.mean()),
        "low": float(rows["low"].min()),
        "high": float(rows["high"].max()),
        "p": p,
        "errors": float(errors),
    }


def _wrong(runs: Sequence[Run], accuracy: pd.DataFrame) -> int:
    """Test rows that are wrong at the highest of these accuracies."""
    return round((1 - accuracy["value"].max()) * min(run.json["prepare"]["test"] for run in runs))


def _tested(runs: Sequence[Run], claim: dict[Any, Any]) -> Cell | None:
    """Our difference and the verdict on a conclusion; None where the runs cannot test it."""
    row, less = _measured(runs, claim["table"], claim["rows"]), None
    if claim["less"]:
        less = _measured(runs, claim["less_table"], claim["less"])
    if row is None or (claim["less"] and less is None):
        return None
    if less is not None:  # the same test rows: dependent, so the widths are added
        row["difference"] -= less["difference"]
        row |= {"low": row["low"] - less["high"], "high": row["high"] - less["low"], "p": float("nan")}
        row["errors"] = max(row["errors"], less["errors"])  # either is wrong on at least these
    word = verdict(row["low"], row["high"], row["p"], claim["sign"], claim["least"], claim["margin"])
    if row["errors"] < FEWEST_ERRORS and claim["table"] != "profile_heads":
        word = too_few(row["errors"])
    elif state := _untrained(runs, claim):
        word = f"no verdict: {state}"
    return Cell(word, f"{fixed(row['difference'], 4, True)} ({interval(row, 4, True)})")


def _untrained(runs: Sequence[Run], claim: dict[Any, Any]) -> str:
    """Why a conclusion has no verdict where a head that its rows compare did not train; empty where all did."""
    if claim["table"] in _OF_ATTENTION:
        return "kept its start" * any(run.kept_start for run in runs)
    rows = rows_where(runs, claim["table"], claim["rows"])
    if "trained" not in rows:
        return ""
    heads = joined(runs, "ablation")
    states = heads.loc[heads["variant"].isin({*rows["variant"], *rows["reference"]}), "trained"]
    return next((state for state in states if state != "yes"), "")


def read_study(name: str) -> pd.DataFrame:
    with resources.files("attnknn.report").joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False)


def _numbers(dataset: str, runs: Sequence[Run]) -> list[Row]:
    """Scores of the study's experiments beside ours, where the dataset is theirs."""
    study = read_study("historic.csv")
    name = "cifar10" if dataset.startswith("cifar10_") else dataset
    study = study[(study["dataset"] == name) & (study["table"] == "main") & study["metric"].isin(SHOWN)]
    ours = (
        joined(runs, "intervals")
        .drop_duplicates(["seed", "method", "metric"])
        .groupby(["method", "metric"])["value"]
        .mean()
    )
    if "tta" in runs[0].tables:
        tta = joined(runs, "tta")
        tta = (
            tta[(tta["views"] == tta["views"].max()) & (tta["method"] == "attention")].groupby("metric")["value"].mean()
        )
        ours = pd.concat([ours, tta.rename(lambda m: ("attention_tta", m))])
    lines: list[Row] = []
    for method in dict.fromkeys(study["method"]):
        own = study[study["method"] == method]
        cells = [" / ".join(fixed(ours[method, m], 4) if (method, m) in ours else "–" for m in SHOWN)]
        for experiment in ("1–3", "4", "5", "6"):
            by_metric = own[own["experiment"] == experiment].set_index("metric")["value"]
            cells.append(
                " / ".join(fixed(by_metric[m], 4) if m in by_metric else "–" for m in SHOWN) if len(by_metric) else ""
            )
        label = NAMES.get(method, method_name(method))
        lines.append([dataset, Cell(label, method=method.partition("_")[0]), *cells])
    return lines


def historic(runs: Sequence[Run]) -> Section:
    by_name = by_dataset(runs, "intervals")
    lines: list[Row] = []
    for claim in read_study("conclusions.csv").to_dict("records"):
        cells = [_tested(own, claim) or "" for own in by_name.values()]
        if any(cells):
            unpaired = ", unpaired" if claim["less"] else ""
            lines.append(
                [Cell(claim["claim"], f"{claim['measure']}{unpaired}; {_rule(claim)} ({claim['source']})"), *cells]
            )
    numbers = [line for dataset, own in by_name.items() for line in _numbers(dataset, own)]
    tables = [
        Table(
            "conclusions",
            "Conclusions of the study, tested on our runs",
            ["the study: our measure (its source)", *by_name],
            lines,
            False,
        )
    ]
    if numbers:
        head = ["dataset", "method", "ours", *(f"experiment {e}" for e in ("1–3", "4", "5", "6"))]
        tables.append(Table("numbers", f"{' / '.join(METRICS[m] for m in SHOWN)}: ours and the study's", head, numbers))
    return Section(
        "historic",
        "The historic study",
        "Six experiments on CIFAR-10, one run each, with untuned baselines and the epoch chosen on test rows. Which of "
        "their conclusions do our runs support?",
        [],
        tables,
        "dvc exp run -S preset=experiment5",
    )

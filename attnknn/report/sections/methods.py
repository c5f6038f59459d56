"""All methods on the test rows: the first table, claims, scores, calibration, repeated splits."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from attnknn.evaluation.method import Method
from attnknn.evaluation.opponents import BEST, KNN, OURS, ROLES, WITHOUT
from attnknn.report import plots
from attnknn.report.names import CALIBRATIONS, METRICS, method_colour, method_name
from attnknn.report.results import Run, by_dataset, by_nll, differences, joined
from attnknn.report.tables import (
    Cell,
    Row,
    Section,
    Table,
    difference_cell,
    fixed,
    judged_table,
    p_value,
    scores_table,
    verdicts_table,
)
from attnknn.report.verdicts import FEWEST_ERRORS, judged

SCORES = ("accuracy", "nll", "ece")
_RIVALS = ("distance", "logistic", "forest", "boosting", "catboost")  # of the verdicts over splits
_FEWEST_ROWS = 5  # of a bin in the reliability plot


# The comparisons of the first table: which form of attention with which opponent.
COMPARED = ((OURS, KNN), (BEST, WITHOUT))


def summary(runs: Sequence[Run], claims: pd.DataFrame) -> Table:
    """The first table of the page: attention and its opponents on the clean bank, by dataset."""
    rows: list[Row] = []
    for name, mine in by_dataset(runs, "intervals").items():
        cells = []
        for role, ours in ((KNN, BEST), (OURS, OURS), (BEST, BEST), (WITHOUT, BEST)):
            own = by_nll(mine, ours).query("role == @role")
            if not len(own):
                cells.append("")
                continue
            numbers = (fixed(own[m].mean(), mine[0].digits) for m in ("accuracy", "nll"))
            method = method_name("/".join(own["method"].unique()))
            cells.append(Cell(" / ".join(numbers), "" if role == OURS else method))
        nll = claims[(claims["dataset"] == name) & claims["clean"] & (claims["metric"] == "nll")]
        tests = [nll.query("ours == @ours and role == @role").to_dict("records") for ours, role in COMPARED]
        verdicts = [Cell(row[0]["verdict"], str(difference_cell(row[0]))) if row else "" for row in tests]
        rows.append([name, *cells, *verdicts, " / ".join(f"{row[0]['errors']:g}" if row else "–" for row in tests)])
    head = ["dataset", "best kNN", "attention", "best attention", "best without neighbours"]
    head += ["NLL: attention − best kNN", "best attention − best without neighbours", "errors"]
    caption = "Accuracy / NLL on test rows of the same method, chosen by the NLL on val"
    return Table("summary", caption, head, rows, folded=False)


def summary_figure(claims: pd.DataFrame) -> bytes:
    """NLL of attention − that of its opponents on the clean bank, a dataset a line, on the scale of its interval."""
    rows = claims[claims["clean"] & (claims["metric"] == "nll")]
    rows = rows[[pair in COMPARED for pair in zip(rows["ours"], rows["role"], strict=True)]]
    unit = (rows["high"] - rows["low"]) / 2
    rows = rows.assign(
        **{column: rows[column] / unit for column in ("difference", "low", "high")},
        label=[f"{r['dataset']} {fixed(r['difference'], r['digits'] + 1, True)}" for r in rows.to_dict("records")],
        colour=rows["role"].map(method_colour),
        group=rows["ours"].str.removesuffix(" attention") + " − best " + rows["role"],
    ).sort_values("role", kind="stable")
    label = "difference ÷ half its interval\nleft of 0: attention is better"
    return plots.forest_plot(rows, "NLL", label)


def claims_table(claims: pd.DataFrame) -> Table:
    """All claims with their numbers and verdicts."""
    rows: list[Row] = []
    for (dataset, condition), group in claims.groupby(["dataset", "condition"], sort=False):
        seeds = int(group["runs"].max())
        rows.append([f"{dataset}, {condition}" + (f", {seeds} runs" if seeds > 1 else "")])
        for row in group.to_dict("records"):
            opponent = Cell(method_name(row["method"]), f"best {row['role']}", method=row["method"])
            numbers = [p_value(row["p"]), f"{row['family']}", f"{row['errors']:g}"]
            ours = f"{row['ours']}: {METRICS[row['metric']]}"
            rows.append([ours, opponent, difference_cell(row), *numbers, row["verdict"]])
    caption = f"Every claim; family: those of a dataset, opponent and score with {FEWEST_ERRORS} errors (Holm's method)"
    head = ["score", "against", "difference", "p", "family", "errors", "verdict"]
    return Table("claims", caption, head, rows)


def evaluate(runs: Sequence[Run]) -> Section:
    scores = joined(runs, "intervals")
    own = scores[scores["role"] == ""]
    figures = []
    for name, rows in differences(own[own["metric"] == "nll"]).groupby("dataset", sort=False):
        label = plots.better_side("nll", "attention − method")
        figures.append((f"{name}", plots.forest_plot(plots.by_method(rows), f"{name}: NLL", label)))
    shown = scores[~scores["role"].isin(list(ROLES))]
    sizes: list[Row] = []
    for run in runs:
        prepared, oracle = run.json["prepare"], run.json["headroom"]
        counts = [f"{prepared[key]:,}" for key in ("bank", "fit", "val", "test", "classes")]
        shares = [fixed(oracle[f"oracle_at_{k}"], run.digits) for k in ("1", "5", "k")]
        sizes.append([run.dataset, str(run.seed), *counts, *shares])
    head = ["dataset", "seed", "bank", "fit", "val", "test", "classes", "1 nearest", "5 nearest", "k nearest"]
    tables = []
    if len(grown := joined(runs, "grow")):
        tests = judged(differences(grown[grown["metric"] == "nll"]), ["dataset", "method", "metric"])
        caption = "NLL with fit and val rows added to the bank − that without"
        tables = [judged_table("grow", caption, tests, ["dataset", "method", "errors"])]
    return Section(
        "evaluate",
        "All methods",
        "kNN, attention, prototypes and linear head read the same embeddings; the others read the rows themselves.",
        figures,
        [
            scores_table(
                "methods", "Scores of all methods", shown, ["method"], [m for m in METRICS if m in set(shown["metric"])]
            ),
            Table("sizes", "Rows, and the share of test rows whose class is among the nearest neighbours", head, sizes),
            *tables,
        ],
        "dvc repro evaluate",
    )


def calibration(runs: Sequence[Run]) -> Section:
    """Reliability of attention and its opponents, and NLL and ECE of every method under every calibration."""
    figures = []
    for name, mine in by_dataset(runs, "reliability").items():
        bins = joined(mine, "reliability").dropna(subset=["accuracy"])
        bins = bins.assign(x=bins["confidence"].round(2), value=bins["accuracy"])
        bins = bins[bins["count"] >= _FEWEST_ROWS].drop(columns=["low", "high"])
        diagonal = plots.Line("", "#999999", pd.DataFrame({"x": [0, 1], "value": [0, 1]}), thin=True)
        methods = list(dict.fromkeys(bins["method"]))
        if bins["x"].nunique() < 3:
            continue
        lines = [diagonal, *plots.method_lines(bins.sort_values("x"), "x", methods)]
        roles = [next((r for r, bases in ROLES.items() if Method.parse(m).base in bases), OURS) for m in methods]
        lines[1:] = [replace(line, colour=method_colour(r)) for line, r in zip(lines[1:], roles, strict=True)]
        figures.append((name, plots.line_plot(lines, f"{name}: reliability", "confidence", "accuracy")))
    tables, rows = [], []
    for run in runs:
        for method, values in run.json["evaluate"].items():
            base, _, kind = method.rpartition("_")
            base, kind = (base, kind) if kind in CALIBRATIONS else (method, "")
            shared = {"dataset": run.dataset, "digits": run.digits, "low": None, "high": None}
            rows += [shared | {"method": base, "kind": kind, "metric": m, "value": values[m]} for m in ("nll", "ece")]
    table = pd.DataFrame(rows)
    table = table[table["method"].isin(table.loc[table["kind"] != "", "method"])]
    for metric in ("nll", "ece") if len(table) else ():
        of_metric = table[table["metric"] == metric].assign(
            metric=lambda t: t["kind"].map({"": "none", **CALIBRATIONS})
        )
        kinds = [k for k in ("none", *CALIBRATIONS.values()) if k in set(of_metric["metric"])]
        scored = scores_table(
            f"calibrated_{metric}", f"{METRICS[metric]} under each calibration", of_metric, ["method"], kinds
        )
        head = ["method", *kinds]
        tables.append(Table(scored.name, scored.caption, head, scored.rows))
    return Section(
        "calibration",
        "Calibration",
        "Calibrations are fitted on fit rows for every method alike, and kept only where they lower the NLL on "
        f"validation rows. Bins of at least {_FEWEST_ROWS} rows; below the diagonal is overconfident.",
        figures,
        tables,
        "dvc repro evaluate",
    )


def splits(runs: Sequence[Run]) -> Section:
    scores, paired = joined(runs, "splits"), joined(runs, "splits_paired")
    figures, tables, verdicts = [], [], None
    if len(scores):
        scores = scores.assign(low=scores["value"] - scores["sd"], high=scores["value"] + scores["sd"])
        for name, rows in scores[scores["metric"] == "nll"].groupby("dataset", sort=False):
            text = f"{name}: NLL ± sd, {rows['splits'].max():g} splits"
            figures.append((str(name), plots.forest_plot(plots.by_method(rows), text, "NLL", None, "value")))
        tests = judged(paired, ["dataset", "method", "baseline", "metric"])
        main = tests[(tests["method"] == OURS) & (tests["metric"] == "nll") & tests["baseline"].isin(_RIVALS)]
        verdicts = verdicts_table("NLL of attention − that of", main, ["dataset", "baseline"])
        tables = [
            judged_table("tests", "All comparisons", tests, ["dataset", "method", "baseline", "metric"]),
            scores_table("means", "Mean ± standard deviation of every method", scores, ["method"], SCORES),
        ]
    return Section(
        "splits",
        "Repeated splits",
        "Every split draws all parts again, retrains everything and is evaluated once; p is that of the corrected "
        "resampled t-test (Nadeau & Bengio 2003), by Holm's method.",
        figures,
        tables,
        "dvc exp run -S 'splits.datasets=[winequality_red]'",
        verdicts=verdicts,
    )

"""All methods on the test rows: the first table, claims, scores, repeated splits; and how they were fitted."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnknn.evaluation.opponents import BEST, KNN, OURS, ROLES, WITHOUT
from attnknn.report import plots
from attnknn.report.names import METRICS, method_colour, method_name
from attnknn.report.results import WRONG, Run, by_dataset, by_nll, differences, joined
from attnknn.report.tables import (
    Cell,
    Row,
    Section,
    Table,
    difference_cell,
    fixed,
    in_order,
    judged_table,
    method_cell,
    p_value,
    scores_table,
    verdicts_table,
)
from attnknn.report.verdicts import BETTER, FEWEST_ERRORS, SAME, WORSE, judged

SCORES = ("accuracy", "nll", "ece")
_RIVALS = ("distance", "logistic", "forest", "boosting", "catboost")  # of the verdicts over splits
_FOLDED = (OURS, "linear", "cnn", "distance_vector")  # shown in the folded table alone


# The comparisons of the first table: which form of attention with which opponent.
COMPARED = ((OURS, KNN), (BEST, WITHOUT))


def summary(runs: Sequence[Run], claims: pd.DataFrame) -> Table:
    """The first table of the page: attention and its opponents by dataset, on clean labels and on wrong ones."""
    rows: list[Row] = []

    def row(name: str, cells: Row, nll: pd.DataFrame) -> Row:
        tests = [nll.query("ours == @ours and role == @role").to_dict("records") for ours, role in COMPARED]
        verdicts = [Cell(test[0]["verdict"], str(difference_cell(test[0]))) if test else "" for test in tests]
        return [name, *cells, *verdicts, " / ".join(f"{test[0]['errors']:g}" if test else "–" for test in tests)]

    for name, mine in by_dataset(runs, "intervals").items():
        cells = []
        for role, ours in ((KNN, BEST), (OURS, OURS), (BEST, BEST), (WITHOUT, BEST)):
            own = by_nll(mine, ours)
            own = own[own["role"] == role]
            if not len(own):
                cells.append("")
                continue
            numbers = (fixed(own[m].mean(), mine[0].digits) for m in ("accuracy", "nll"))
            method = "/".join(own["method"].unique())
            cells.append(Cell(" / ".join(numbers), "" if method == OURS else method_name(method)))
        nll = claims[(claims["dataset"] == name) & (claims["metric"] == "nll")]
        rows.append(row(name, cells, nll[nll["clean"]]))
        wrong = [run.json["noise"][WRONG] for run in mine if WRONG in run.json.get("noise", {})]
        if wrong:
            cells = []
            for role in (KNN, OURS, BEST, WITHOUT):
                means = (np.mean([scores[role][metric] for scores in wrong]) for metric in ("accuracy", "nll"))
                cells.append(" / ".join(fixed(float(mean), mine[0].digits) for mean in means))
            rows.append(row(f"{name}, 40 % of all labels wrong", cells, nll[nll["condition"] == WRONG]))
    head = ["dataset", "best kNN", "attention", "best attention", "best without neighbours"]
    head += ["NLL: attention − best kNN", "best attention − best without neighbours", "errors"]
    caption = "Accuracy / NLL on test rows of the same method, chosen by the NLL on val"
    return Table("summary", caption, head, rows, folded=False)


def counts(claims: pd.DataFrame) -> str:
    """How often attention is better and worse in NLL than its opponents, over all datasets and conditions."""
    parts = []
    for ours, role in COMPARED:
        nll = claims[(claims["metric"] == "nll") & (claims["ours"] == ours) & (claims["role"] == role)]
        verdicts = nll["verdict"].where(nll["errors"] >= FEWEST_ERRORS, "no verdict")
        numbers = [f"{name} {(verdicts == name).sum()}" for name in (BETTER, WORSE, SAME, "no verdict")]
        parts.append(f"{ours} against the best {role}: {', '.join(numbers)}")
    return f"NLL under all conditions: {'; '.join(parts)}."


def summary_figure(claims: pd.DataFrame) -> bytes:
    """NLL of attention − that of its opponents on the clean bank, a dataset a line, on the scale of its interval."""
    rows = claims[claims["clean"] & (claims["metric"] == "nll")]
    rows = rows[[pair in COMPARED for pair in zip(rows["ours"], rows["role"], strict=True)]]
    unit = (rows["high"] - rows["low"]) / 2
    rows = rows.assign(
        **{column: rows[column] / unit for column in ("difference", "low", "high")},
        label=[f"{r['dataset']} {fixed(r['difference'], r['digits'] + 1, True)}" for r in rows.to_dict("records")],
        colour=rows["role"].map(method_colour),
        group=rows["ours"].str.removesuffix(" attention") + " − " + rows["role"],
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
    scores, figures, verdicts = joined(runs, "intervals"), [], []
    own = differences(scores[(scores["role"] == "") & (scores["metric"] == "nll")])
    tests = in_order(judged(own, ["dataset", "method", "metric"]))
    for name in dict.fromkeys(own["dataset"]):
        rows = tests[(tests["dataset"] == name) & ~tests["method"].isin(_FOLDED)]
        label = plots.better_side("nll", "attention − method")
        figures.append((name, plots.forest_plot(plots.by_method(rows), f"{name}: NLL", label)))
        verdicts += verdicts_table("NLL of attention −", rows, ["method"])
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
        "kNN, attention, prototypes, the linear head and what is named so read the same embeddings; the others read "
        "columns or pixels.",
        figures,
        [
            scores_table(
                "methods", "Scores of all methods", shown, ["method"], [m for m in METRICS if m in set(shown["metric"])]
            ),
            judged_table("tests", "NLL of attention − that of each method", tests, ["dataset", "method", "errors"]),
            Table("sizes", "Rows, and the share of test rows whose class is among the nearest neighbours", head, sizes),
            *tables,
        ],
        "dvc repro evaluate",
        verdicts=verdicts,
    )


def splits(runs: Sequence[Run]) -> Section:
    scores, paired = joined(runs, "splits"), joined(runs, "splits_paired")
    figures, tables, verdicts = [], [], []
    if len(scores):
        scores = scores.assign(low=scores["value"] - scores["sd"], high=scores["value"] + scores["sd"])
        for name, rows in scores[scores["metric"] == "nll"].groupby("dataset", sort=False):
            text = f"{name}: NLL ± sd, {rows['splits'].max():g} splits"
            figures.append((str(name), plots.forest_plot(plots.by_method(rows), text, "NLL", None, "value")))
        tests = judged(paired, ["dataset", "method", "baseline", "metric"])
        main = tests[(tests["method"] == OURS) & (tests["metric"] == "nll") & tests["baseline"].isin(_RIVALS)]
        verdicts = verdicts_table("NLL of attention − that of", main, ["baseline"])
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


def training(runs: Sequence[Run]) -> Section:
    figures, states = [], []
    for dataset, own in by_dataset(runs, "attention").items():
        states.append([dataset])
        kept = set()
        for run in own:
            start, *_ = epochs = run.tables["attention"].to_dict("records")
            best = min(epochs, key=lambda row: row["val_nll"])
            kept.add(best["epoch"])
            numbers = f"{start['val_nll']:.4f} → {best['val_nll']:.4f}, epoch {best['epoch']:g}"
            states.append([f"seed {run.seed}", Cell("kept its start" if run.kept_start else "trained", numbers)])
        rows = joined(own, "attention")
        lines = [
            plots.Line(
                name, colour, rows.assign(x=rows["epoch"], value=rows[column]), kept if column == "val_nll" else ()
            )
            for name, column, colour in (
                ("fit loss", "fit_loss", "#7f7f7f"),
                ("NLL on val", "val_nll", method_colour("attention")),
            )
        ]
        figures.append((f"{dataset}, head", plots.line_plot(lines, f"{dataset}: attention head", "epoch")))
    tuned: list[Row] = []
    for run in runs:
        for method, values in run.json.get("tuned", {}).items():
            text = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
            if "unchanged" not in values:
                tuned.append([run.dataset, str(run.seed), method_cell(method), text])
    return Section(
        "training",
        "Training and tuned values",
        "Dots mark the epoch that was kept; epoch 0 of the head is tuned distance weighting with k_train "
        "neighbours. A head that gains less than 1e-4 of NLL on val over it is said to have kept its start.",
        figures,
        [
            Table(
                "tuned",
                "Tuned or fitted values; what is missing did not lower the NLL on val",
                ["dataset", "seed", "method", "values"],
                tuned,
            )
        ],
        "dvc repro train_attention",
        verdicts=[Table("verdicts", "Attention head: NLL on val", ["Attention head: NLL on val", "verdict"], states)]
        if states
        else [],
    )

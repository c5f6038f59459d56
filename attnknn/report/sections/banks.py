"""Modified banks: wrong labels, rare classes; and encoders trained on modified data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnknn.evaluation.opponents import BEST, KNN, OURS, ROLES, WITHOUT
from attnknn.report import plots
from attnknn.report.names import METRICS, method_colour, method_name
from attnknn.report.results import CLEAN, Run, all_conditions, joined
from attnknn.report.tables import Section, Table, judged_table, scores_table, verdict_cell, verdicts_table
from attnknn.report.verdicts import judged

METRICS_SHOWN = ("accuracy", "nll", "ece")
_PAIRS = ((OURS, KNN), (OURS, WITHOUT), (BEST, KNN), (BEST, WITHOUT))  # of the verdicts at each rate


def _section(
    runs: Sequence[Run],
    claims: pd.DataFrame,
    kinds: dict[str, float],
    middle: float,
    drawn: Sequence[str],
    **texts: Any,
) -> Section:
    """Scores over the rate of each kind of modification.

    Args:
        kinds: first words of conditions → the rate of the unmodified bank.
        middle: rate of the verdicts beside the figures.
        drawn: kinds with a figure.
    """
    figures, lines, shown, first = [], [], [], [f"{kind} {middle:g}" for kind in kinds]
    rows = all_conditions(runs)
    rows = rows[rows["role"] != ""]
    words = rows["condition"].str.rpartition(" ")
    rows = rows.assign(kind=words[0], rate=pd.to_numeric(words[2], errors="coerce"), method=rows["role"])
    for (dataset, kind), own in rows[rows["kind"].isin(list(kinds))].groupby(["dataset", "kind"], sort=False):
        unmodified = rows[(rows["dataset"] == dataset) & (rows["condition"] == CLEAN)].assign(rate=kinds[str(kind)])
        curve = pd.concat([unmodified, own])
        ticks = sorted(curve["rate"].unique(), reverse=kinds[str(kind)] > 0)
        nll = plots.method_lines(curve[curve["metric"] == "nll"], "rate", [OURS, *ROLES])
        png = plots.line_plot(nll, f"{dataset}: NLL", f"{kind}: rate", ticks=ticks, legend=not figures)
        if kind in drawn:
            figures.append((f"{dataset}, {kind}", png))
        shown.append(own)
    words = claims["condition"].str.rpartition(" ")
    nll = claims.assign(kind=words[0], rate=words[2])[(claims["metric"] == "nll") & words[0].isin(list(kinds))]
    for (dataset, kind), own in nll.groupby(["dataset", "kind"], sort=False):
        cells = {(r["rate"], r["ours"], r["role"]): verdict_cell(r) for r in own.to_dict("records")}
        lines.append([f"{dataset}, {kind}"])
        lines += [[rate, *(cells.get((rate, *pair), "") for pair in _PAIRS)] for rate in own["rate"].unique()]
    tables = []
    if shown:
        head = ["rate", *(f"{ours} − best {role}" for ours, role in _PAIRS)]
        tables = [
            Table("by_rate", "Differences in NLL at each rate", head, lines),
            scores_table(
                "scores", "Scores under each condition", pd.concat(shown), ["condition", "method"], METRICS_SHOWN
            ),
        ]
    main = nll[(nll["ours"] == OURS) & (nll["role"] == KNN) & nll["condition"].isin(first)]
    verdicts = verdicts_table("NLL of attention − best kNN", main, ["condition"])
    return Section(figures=figures, tables=tables, verdicts=verdicts, **texts)


def noise(runs: Sequence[Run], claims: pd.DataFrame) -> Section:
    section = _section(
        runs,
        claims,
        {f"{kind}noise{where}": 0.0 for where in ("", " of all labels") for kind in ("", "asymmetric ", "instance ")},
        0.4,
        ("noise", "noise of all labels"),
        name="noise",
        title="Wrong labels",
        text="A share of the labels is wrong, in the bank alone or in all rows but test: any other class (noise), the "
        "next one (asymmetric), or one that the row resembles (instance). Where all are wrong, methods see through the "
        "estimated noise; the encoder was trained on clean labels, if on any.",
        command="dvc exp run -S 'noise.rates=[0.0,0.5]'",
    )
    head = ["condition", "wrong", "estimated", "|T̂ − T|, mean of cells", "right in the bank, given", "right, corrected"]
    keys, rows = ("wrong", "wrong_estimated", "transition_error", "right_given", "right_corrected"), []
    for run in runs:
        by_condition = run.json.get("noise", {}).items()
        estimates = [(name, scores["label noise"]) for name, scores in by_condition if "label noise" in scores]
        rows += [[f"{run.dataset}, seed {run.seed}"]] * bool(estimates)
        rows += [[name, *(f"{values[key]:.3f}" for key in keys)] for name, values in estimates]
    estimated = Table("label_noise", "Estimated label noise, and labels corrected by it", head, rows)
    return replace(section, tables=[*section.tables, estimated, *_all_methods(runs)]) if rows else section


def _all_methods(runs: Sequence[Run]) -> list[Table]:
    """NLL of every method, without calibration or seeing through wrong labels, where all labels are wrong."""
    nll = joined(runs, "noise_methods").pivot_table("nll", ["dataset", "method"], "condition", sort=False)
    rows: list[list[str]] = []
    for dataset, own in nll.groupby(level="dataset", sort=False):
        rows += [[str(dataset)]]
        rows += [
            [method_name(method), *("" if np.isnan(value) else f"{value:.3f}" for value in values)]
            for (_, method), *values in own.itertuples()
        ]
    return [Table("noise_methods", "NLL of all methods with all labels wrong", ["method", *nll.columns], rows)]


def imbalance(runs: Sequence[Run], claims: pd.DataFrame) -> Section:
    return _section(
        runs,
        claims,
        {"long tail": 1.0, "step": 1.0},
        0.1,
        ("long tail", "step"),
        name="imbalance",
        title="Rare classes in the bank",
        text="Classes are subsampled to a long tail, or half of them to one size (step); the rate is the smallest "
        "class's share of the largest. Attention is refitted and opponents chosen anew on unmodified rows.",
        command="dvc exp run -S 'imbalance.ratios=[0.1,0.01]'",
    )


# variant and method of `noise_trained`: name
_NOISE_LINES = {
    ("cross_entropy", "cnn"): "Plain network, noisy labels",
    ("plain", "distance"): "Distance-weighted kNN, noisy labels",
    ("plain", "attention"): "Attention, noisy labels",
    ("cross_entropy_cleaned", "cnn"): "Plain network, cleaned labels",
    ("cleaned", "distance"): "Distance-weighted kNN, cleaned labels",
    ("cleaned", "attention"): "Attention, cleaned labels",
    ("corrected", "attention_forward"): "Attention, through the estimated noise",
}
_TRAINED = ["dataset", "condition", "method", "baseline", "metric"]
_LABELS = {"cross_entropy": "plain", "cross_entropy_cleaned": "cleaned"}  # variants with the same labels


def _trained_tests(paired: pd.DataFrame) -> pd.DataFrame:
    """Judged comparisons of trained variants in accuracy and NLL."""
    paired = paired[paired["metric"].isin(("accuracy", "nll"))]
    names = {}
    for column, variant in (("method", "variant"), ("baseline", "baseline_variant")):
        labels = paired[variant].replace(_LABELS).replace({"plain": "as given"})
        names[column] = [f"{method_name(m)}, {label}" for m, label in zip(paired[column], labels, strict=True)]
    return judged(paired.assign(**names), _TRAINED)


def noise_trained(runs: Sequence[Run]) -> Section:
    rows, paired = joined(runs, "noise_trained"), joined(runs, "noise_trained_paired")
    figures, tables, verdicts = [], [], []
    if len(rows):
        for dataset, own in rows[rows["metric"] == "accuracy"].groupby("dataset", sort=False):
            lines = [
                plots.Line(
                    name,
                    method_colour(method),
                    own[(own["variant"] == variant) & (own["method"] == method)].assign(x=own["rate"]),
                    dashed=variant in ("cross_entropy", "plain"),
                )
                for (variant, method), name in _NOISE_LINES.items()
            ]
            ticks = sorted(own["rate"].unique())
            png = plots.line_plot(lines, f"{dataset}: accuracy", "share of wrong labels", ticks=ticks)
            figures.append((str(dataset), png))
        cleaned = joined(runs, "cleaning").assign(method="", metric=lambda t: t["quantity"], low=None, high=None)
        cleaned = cleaned.assign(round=cleaned["round"].map("round {:g}".format))
        wrong = ("wrong_before", "wrong_after", "mended", "spoiled")
        scores = rows.assign(labels=rows["variant"].replace(_LABELS).replace({"plain": "as given"}))
        ours = (paired["variant"] + ":" + paired["method"]).isin(("cleaned:attention", "corrected:attention_forward"))
        main = _trained_tests(paired[ours]).assign(method=lambda t: t["method"] + " − " + t["baseline"])
        verdicts = verdicts_table("Difference", main, ["condition", "metric", "method"])
        tables = [
            judged_table("paired", "All comparisons", _trained_tests(paired), [*_TRAINED, "errors"]),
            scores_table(
                "cleaning", "Shares of labels in the bank by round of cleaning", cleaned, ["condition", "round"], wrong
            ),
            scores_table("methods", "Scores of all methods", scores, ["condition", "labels", "method"], METRICS_SHOWN),
        ]
    return Section(
        "noise_trained",
        "Trained on wrong labels",
        "Labels of bank, fit and val are wrong in a share of the rows before anything is trained; neighbours then "
        "clean the bank. Forward correction (Patrini et al. 2017) fits the temperature through estimated transitions; "
        "on corrected labels everything but the encoder is fitted through the estimated label noise.",
        figures,
        tables,
        "dvc exp run -S 'train_corrupted.seeds=[42]'",
        verdicts=verdicts,
    )


def imbalance_trained(runs: Sequence[Run]) -> Section:
    rows, paired = joined(runs, "imbalance_trained"), joined(runs, "imbalance_trained_paired")
    tables = []
    if len(rows):
        metrics = [m for m in METRICS if m in set(rows["metric"])]
        tables = [
            judged_table("paired", "All comparisons", _trained_tests(paired), [*_TRAINED, "errors"]),
            scores_table("scores", "Scores of all methods", rows, ["condition", "method"], metrics),
        ]
    return Section(
        "imbalance_trained",
        "Trained on rare classes",
        "Bank, fit and val are subsampled before anything is trained; methods are shown with and without a correction "
        "for class shares. Many, medium and few are thirds of the classes by their rows in the bank.",
        [],
        tables,
        "dvc exp run -S 'train_corrupted.seeds=[42]'",
    )

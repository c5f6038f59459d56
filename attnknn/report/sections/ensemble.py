"""Several k made one answer: what it changes against the same method's single k."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report.claims import NAMES
from attnknn.report.differences import OUT_OF_REACH, judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.plots import (
    HIGHER_IS_BETTER,
    INK,
    METRICS,
    as_png,
    method_colour,
    method_name,
    new_figure,
    style_axes,
)
from attnknn.report.results import OF_SEEDS, Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import digits_for, fixed, p_value

SCORES, PAIRED = "ensemble", "ensemble_paired"
TABLES: dict[str, tuple[str, ...]] = {
    SCORES: ("variant", "method", "metric", "value", "low", "high"),
    PAIRED: ("variant", "method", "baseline", "metric", "difference", "low", "high", "errors", "p", "test"),
}
VARIANTS = {
    "single": "single k",
    "k_ensemble": "k-ensemble",
    "adaptive_k": "adaptive k",
    "stopping": "learned stopping",
}
SHOWN = ("uniform", "distance", "distance_vector", "attention")
DRAWN = ("nll", "accuracy")
DIGITS = 4  # of differences
NOTE = (
    "Every variant is given to every kNN method, with and without vector scaling; prototypes and the linear head "
    "have no k. The baselines are tuned on the val rows at each k; attention is the one fitted head, shown fewer "
    "neighbours. The single k is what the main comparison answers with: tuned for the baselines, k_eval for "
    "attention. The historic rule takes a share of .3, .6 or all of the neighbours where the entropy of the "
    "method's own weights, over log k, is below .5, below 1, or not. That entropy is at most 1, so the third branch "
    "is left to weights that are all alike: uniform kNN always takes all, and a method with weights of its own "
    "never more than .6 of them. Learned stopping is fitted on the fit rows, and on the val rows it may fall back "
    "on the single k. Adaptive k and learned stopping spare votes, not search: their mean k counts the neighbours "
    "whose votes are used. p values are adjusted by Holm's method over all differences of a dataset, and count as a "
    "finding below .01; hollow points are no finding."
)


def moves(paired: pd.DataFrame, level: Level) -> pd.DataFrame:
    """What each variant changes for each method and metric of one dataset, over the seeds, judged together.

    Args:
        paired: rows of variant, method, metric, difference, low, high, errors, p: one for each seed.

    Returns:
        variant, method, metric, and the columns of `differences.over_runs` and `differences.judged`.
    """
    return judged(over_runs(paired[paired["method"].isin(SHOWN)], ("variant", "method", "metric")), level)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _said(row: Any, seeds: int) -> str:
    spread = f" ± {fixed(row['sd'], DIGITS)} over {seeds} seeds" if seeds > 1 else ""
    ends = f"{fixed(row['low'], DIGITS, sign=True)} … {fixed(row['high'], DIGITS, sign=True)}"
    return f"{fixed(row['difference'], DIGITS, sign=True)}{spread} ({ends}, p {p_value(row['p'])})"


def sentence(found: pd.DataFrame, mean_k: dict[str, float], seeds: int) -> str:
    """What the variants change: the NLL of attention, and whatever else is shown to differ.

    Args:
        found: of `moves`.
        mean_k: of attention by variant.
    """

    def told(row: Any, name: str) -> str:
        metric = NAMES[row["metric"]]
        if row["verdict"] == "undecided":
            return f"{name} {row['finding']} in {metric}, {_said(row, seeds)}"
        return f"{name} {row['finding']} {metric}, {_said(row, seeds)}"

    ours = found[(found["method"] == "attention") & (found["metric"] == "nll")]
    heard = "; ".join(told(row, f"{VARIANTS[row['variant']]}:") for _, row in ours.iterrows())
    alike = found["finding"].nunique() == 1 and found["finding"].iloc[0].startswith(OUT_OF_REACH)
    if alike:
        said = [f"For every method and metric a difference from the single k is {found['finding'].iloc[0]}."]
    else:
        said = [f"Attention against its own single k. {_capital(heard)}."]
    used = [f"{VARIANTS[v]} {mean_k[v]:.1f}" for v in ("adaptive_k", "stopping") if v in mean_k]
    if used and "single" in mean_k:
        said.append(f"Mean k: {', '.join(used)}, of {mean_k['single']:.0f}.")
    rest = found.drop(ours.index)
    shown = rest[rest["verdict"] != "undecided"]
    for good, word in (("yes", "Better than the single k"), ("no", "Worse than the single k")):
        of = shown[shown["verdict"] == good]
        named: dict[str, list[str]] = {}
        for _, row in of.iterrows():
            named.setdefault(f"{VARIANTS[row['variant']]} in {NAMES[row['metric']]}", []).append(
                method_name(row["method"])
            )
        if named:
            said.append(f"{word}: " + "; ".join(f"{where} ({', '.join(who)})" for where, who in named.items()) + ".")
    if alike:
        return " ".join(said)
    closed = rest.loc[rest["finding"].str.startswith(OUT_OF_REACH), "finding"]
    if shown.empty and len(closed) < len(rest):
        said.append("No difference shown for any other method or metric.")
    for why, of in closed.groupby(closed, sort=False):
        said.append(f"Of the {len(rest)} other differences {len(of)} are {why}.")
    return " ".join(said)


def picture(found: pd.DataFrame) -> bytes:
    """Differences of each variant from the single k with intervals, in NLL and in accuracy, by method.

    Args:
        found: of `moves`.
    """
    places: list[tuple[str, str]] = []
    for variant in [v for v in VARIANTS if v in set(found["variant"])]:
        here = set(found.loc[found["variant"] == variant, "method"])
        places += [(variant, ""), *((variant, method) for method in SHOWN if method in here)]
    figure = new_figure(3.4, 0.8 + 0.2 * len(places))
    panels = figure.subplots(1, len(DRAWN), sharey=True)
    known = {(row["variant"], row["method"], row["metric"]): row for _, row in found.iterrows()}
    for axes, metric in zip(panels, DRAWN, strict=True):
        axes.axvline(0, color=INK, lw=0.8, zorder=1)
        for y, (variant, method) in enumerate(places):
            if not method:
                axes.axhspan(y - 0.5, y + 0.5, color="#f0f0f0", lw=0, zorder=2)
                continue
            row, colour = known[variant, method, metric], method_colour(method)
            axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=2, solid_capstyle="butt", zorder=3)
            # A filled point is a difference that is shown; a hollow one could be chance.
            face = "white" if row["verdict"] == "undecided" else colour
            axes.plot(row["difference"], y, "o", color=colour, mfc=face, ms=4.5, zorder=4)
        axes.set_title(METRICS[metric], loc="left", size=9.5, weight="bold", color=INK)
        side = "right" if metric in HIGHER_IS_BETTER else "left"
        axes.set_xlabel(f"less single k\n({side} of 0: better)")
        axes.locator_params(axis="x", nbins=3)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.6g}".replace("-", "−"))
        axes.margins(x=0.12)
        style_axes(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=7.5)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.label.set_size(7.5)
    short = {m: method_name(m).replace("-weighted kNN", "").replace(" kNN", "") for m in SHOWN}
    panels[0].set_yticks(
        range(len(places)),
        [
            short[method].replace("vector scaling", "vector") if method else _capital(VARIANTS[v])
            for v, method in places
        ],
    )
    for label, (_, method) in zip(panels[0].get_yticklabels(), places, strict=True):
        label.set(color=method_colour(method) if method else INK, weight="normal" if method else "bold")
    panels[0].set_ylim(len(places) - 0.5, -0.5)
    return as_png(figure)


def _tables(scores: pd.DataFrame, found: pd.DataFrame, digits: int, seeds: int) -> list[Table]:
    of = scores.groupby(["variant", "method", "metric"], sort=False).agg(
        value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max")
    )

    known = dict(zip(of.index, of.to_dict("records"), strict=True))

    def cell(key: tuple[str, str, str]) -> str:
        row = known[key]
        if key[2] == "mean_k":
            return fixed(row["value"], 1)
        around = f"{fixed(row['low'], digits)} … {fixed(row['high'], digits)}"
        if seeds > 1:
            around = f"± {fixed(row['sd'], digits)}"
        return f"{fixed(row['value'], digits)} ({around})"

    methods = list(dict.fromkeys(scores["method"]))
    metrics = ("mean_k", "accuracy", "nll", "ece")
    values = [
        [_capital(VARIANTS[v]), method_name(m), *(cell((v, m, metric)) for metric in metrics)]
        for v in VARIANTS
        for m in methods
    ]
    differences = [
        [
            _capital(VARIANTS[row["variant"]]),
            method_name(row["method"]),
            METRICS[row["metric"]],
            fixed(row["difference"], DIGITS, sign=True),
            f"{fixed(row['low'], DIGITS, sign=True)} … {fixed(row['high'], DIGITS, sign=True)}",
            p_value(row["p"]),
            row["finding"],
        ]
        for _, row in found.iterrows()
    ]
    around = "± standard deviation over seeds" if seeds > 1 else "intervals"
    return [
        Table(
            "scores",
            f"Every kNN method in every variant, with {around}",
            ("Variant", "Method", "Mean k", "Accuracy", "NLL", "ECE"),
            values,
        ),
        Table(
            "differences",
            "Variant less single k of the same method, p adjusted by Holm's method",
            ("Variant", "Method", "Metric", "Difference", "Interval", "p", "Finding"),
            differences,
        ),
    ]


def of_seeds(run: Run, digits: int) -> list[Table]:
    """The mean of the predictions over seeds beside each seed's, where they share their test rows."""
    if OF_SEEDS not in run.tables:
        return []
    rows = []
    for r in run.tables[OF_SEEDS].to_dict("records"):
        ends = f"{fixed(r['low'], digits)} … {fixed(r['high'], digits)}" if r["low"] == r["low"] else ""
        score = Cell(fixed(r["value"], digits), ends)
        rows.append([str(r["source"]), method_name(r["method"]), METRICS.get(r["metric"], r["metric"]), score])
    return [Table("seeds", "Mean of the predictions over seeds", ["of", "method", "metric", "score"], rows)]


def section(runs: Sequence[Run], level: Level) -> Section:
    """What k-ensemble, adaptive k and learned stopping change, for every dataset where the stage ran."""
    parts = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == dataset and PAIRED in run.tables and SCORES in run.tables]
        if not mine:
            continue
        scores, found = joined(mine, SCORES), moves(joined(mine, PAIRED), level)
        digits = digits_for(int(mine[0].json["prepare"]["test"]))
        ours = scores[(scores["method"] == "attention") & (scores["metric"] == "mean_k")]
        mean_k = {str(v): float(k) for v, k in ours.groupby("variant")["value"].mean().items()}
        tables = _tables(scores, found, digits, len(mine)) + of_seeds(mine[-1], digits)
        text = f"{dataset}: differences of k-ensemble, adaptive k and learned stopping from the single k"
        parts.append(
            Part(
                dataset,
                sentence(found, mean_k, len(mine)),
                [(text, picture(found))],
                tables,
            )
        )
    return Section(
        "ensemble",
        "Several k in one answer",
        "Does it help to answer with more than one k? The mean of the answers at several k, the historic rule that "
        "takes fewer neighbours where the weights are concentrated, and a learned rule that stops as soon as the votes "
        "suffice, each for every kNN method and against that method's own single k.",
        parts,
        NOTE,
        "dvc repro ensemble",
    )

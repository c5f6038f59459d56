"""Test-time augmentation in the report: what several views of an image give every method, and what is attention's."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.plots import (
    INK,
    METHODS,
    METRICS,
    as_png,
    method_colour,
    method_name,
    new_figure,
    tidy,
)
from attnknn.report.claims import FEWEST_ERRORS, combined_p, holm, verdict
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import digits_for, fixed, p_value

TABLES: dict[str, tuple[str, ...]] = {
    "tta": ("views", "method", "metric", "value", "low", "high"),
    "tta_alone": ("view", "method", "metric", "value", "without"),
    "tta_paired": (
        *("method", "baseline", "views", "baseline_views", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
}
SHOWN = ("nll", "ece")
ALPHA = 0.01
OURS, TO_BEAT = "attention", "distance_vector"
_PAIR = ["method", "baseline", "views", "baseline_views", "metric"]
WORDS = {"yes": "lower", "no": "higher"}  # of SHOWN, where lower is better


def _over_seeds(paired: pd.DataFrame) -> pd.DataFrame:
    """One row a pair and metric: mean and sd of the difference, the furthest ends, p combined, fewest errors."""
    return (
        paired.groupby(_PAIR, sort=False)
        .agg(
            difference=("difference", "mean"),
            sd=("difference", "std"),
            low=("low", "min"),
            high=("high", "max"),
            errors=("errors", "min"),
            p=("p", lambda p: combined_p(p.tolist())),
            moves=("difference", list),
        )
        .reset_index()
    )


def _judged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with p adjusted by Holm's method among them, and in words: lower, higher, or neither and why."""
    rows = rows.assign(p=holm(rows["p"].tolist()))
    words = []
    for row in rows.to_dict("records"):
        kind = verdict(row["moves"], row["p"], row["errors"], row["metric"], ALPHA)
        few = row["errors"] < FEWEST_ERRORS
        words.append(WORDS.get(kind, "too few errors to tell" if few else "no difference shown"))
    return rows.assign(word=words)


def _moved(row: Any, digits: int, seeds: int) -> str:
    """A difference with its interval and p, and its sd where there are several seeds."""
    sd = f", ± {fixed(row['sd'], digits)} over {seeds} seeds" if seeds > 1 else ""
    ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
    p = p_value(row["p"])
    return f"{fixed(row['difference'], digits, True)} ({ends}{sd}, p {p if p.startswith('<') else '= ' + p})"


def _count(rows: pd.DataFrame) -> str:
    """For how many methods a score is lower, and for how many higher."""
    counts = {word: int((rows["word"] == word).sum()) for word in ("lower", "higher")}
    named = " and ".join(f"{word} for {n}" for word, n in counts.items() if n)
    return f"{named or 'shown to differ for none'} of {len(rows)} methods"


def _sentence(gains: pd.DataFrame, own: pd.DataFrame, views: int, digits: int, seeds: int) -> str:
    """What the views do for every method, and what is left to attention.

    Args:
        gains: base methods with all views against themselves with one view, NLL and ECE, judged.
        own: attention against distance weighting with vector scaling in NLL, with one view and with all, judged.
    """
    text = f"With the mean over {views} views"
    for metric in SHOWN:
        of = gains[gains["metric"] == metric]
        ours, others = of[of["method"] == OURS], of.loc[of["method"] != OURS, "difference"]
        text += f"{',' if metric == SHOWN[0] else ''} {METRICS[metric]} is {_count(of)}"
        if len(ours) and len(others):
            low, high = (fixed(end, digits, True) for end in (others.min(), others.max()))
            text += f": attention {_moved(ours.iloc[0], digits, seeds)}, the others {low} to {high}"
        text += "."
    nll = gains[gains["metric"] == "nll"].set_index("method")["word"]
    word, others = nll.get(OURS), nll.drop(OURS, errors="ignore")
    if word in ("lower", "higher"):
        alike = int((others == word).sum())
        shared = f"is an effect of the views, not of attention: {alike} of the {len(others)} others have it too."
        text += f" The {word} NLL {shared if alike else 'is shown for attention only.'}"
    if len(own):
        moves = {n: own[own["views"] == n].iloc[0] for n in (views, 1)}
        same, alone = (f"{_moved(row, digits, seeds)}, {row['word']}" for row in moves.values())
        text += f" NLL of attention against {method_name(TO_BEAT).lower()} on the same views: {same}; "
        text += f"on the image alone: {alone}."
    return text


def _curves(rows: pd.DataFrame) -> bytes:
    """NLL and ECE of every method against the number of views that are averaged, over two panels.

    Args:
        rows: views, method, metric, value.
    """
    figure = new_figure(3.4, 4.6)
    panels = figure.subplots(len(SHOWN), 1, sharex=True)
    methods = [m for m in METHODS if m in set(rows["method"])]
    for axes, metric in zip(panels, SHOWN, strict=True):
        ends = []
        for method, marker in zip(methods, "ovs^DPX*<", strict=False):
            line = rows[(rows["method"] == method) & (rows["metric"] == metric)].sort_values("views")
            colour, ours = method_colour(method), method == OURS
            axes.plot(
                line["views"],
                line["value"],
                marker=marker,
                ms=4,
                color=colour,
                lw=2 if ours else 1.2,
                zorder=4 if ours else 3,
                label=method_name(method),
            )
            ends.append((float(line["value"].iloc[-1]), method, colour))
        axes.set_title(METRICS[metric], loc="left", size=10, weight="bold", color=INK)
        axes.set_xticks(sorted(rows["views"].unique()))
        tidy(axes)
    panels[-1].set_xlabel("views averaged")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower left",
        ncols=2,
        fontsize=7,
        frameon=False,
        handlelength=1.6,
        columnspacing=1,
    )
    return as_png(figure)


def _gains(rows: pd.DataFrame, views: int) -> bytes:
    """What all views change of every method's NLL and ECE, with intervals, side by side.

    Args:
        rows: method, metric, difference, low, high: all views against one.
    """
    methods = [m for m in METHODS if m in set(rows["method"])]
    figure = new_figure(3.4, 0.95 + 0.27 * len(methods))
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for axes, metric in zip(panels, SHOWN, strict=True):
        axes.axvline(0, color=INK, lw=0.8, zorder=1)
        of_metric = rows[rows["metric"] == metric].set_index("method")
        for place, method in enumerate(methods):
            row, colour = of_metric.loc[method], method_colour(method)
            axes.plot([row["low"], row["high"]], [place, place], color=colour, lw=2, solid_capstyle="butt")
            axes.plot(row["difference"], place, "o", color=colour, ms=4.2)
        axes.set_title(METRICS[metric], loc="left", size=10, weight="bold", color=INK)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=2)
        axes.xaxis.set_major_formatter("{x:g}")
        tidy(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=7.5)
    panels[0].set_yticks(range(len(methods)), [method_name(m).replace(" + ", "\n+ ") for m in methods])
    figure.supxlabel(f"{views} views − 1 view (left of 0: better)", size=8.5, color=INK)
    return as_png(figure)


def _changes(rows: pd.DataFrame, gains: pd.DataFrame, views: int, digits: int) -> Table:
    """Every method with one view and with all, and the change.

    Args:
        rows: views, method, metric, value; the mean over seeds.
        gains: all views against one; p values as measured.
    """
    value = rows.set_index(["views", "method", "metric"])["value"]
    table = []
    for row in gains.to_dict("records"):
        method, metric = row["method"], row["metric"]
        one, all_of = (fixed(value[n, method, metric], digits) for n in (1, views))
        ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
        change = f"{fixed(row['difference'], digits, True)} ({ends})"
        table.append([METRICS[metric], method_name(method), one, all_of, change, p_value(row["p"])])
    head = ["metric", "method", "1 view", f"{views} views", "change", "p"]
    caption = "Every method with the image alone and with the mean over all views; p is not adjusted."
    return Table("changes", caption, head, table)


def _alone(rows: pd.DataFrame, all_views: dict[Any, float], digits: int) -> Table:
    """What each view gives alone, and what the mean over all views would lose without it.

    Args:
        rows: view, method, metric, value, without; the mean over seeds.
        all_views: value with all views, by method and metric.
    """
    table = []
    for (view, method), found in rows.groupby(["view", "method"], sort=False):
        of = found.set_index("metric")[["value", "without"]].to_dict("index")
        cells = [fixed(of[m]["value"], digits) for m in ("accuracy", *SHOWN)]
        added = [fixed(all_views[method, m] - of[m]["without"], digits, True) for m in SHOWN]
        table.append([str(view).replace("_", " "), method_name(str(method)), *cells, *added])
    head = ["view", "method", "accuracy alone", "NLL alone", "ECE alone", "NLL added", "ECE added"]
    caption = "Each view alone, and what it adds: the mean over all views less that over all others (below 0: better)."
    return Table("views", caption, head, table)


def section(runs: Sequence[Run]) -> Section:
    """Test-time augmentation, of those datasets whose rows have views."""
    parts = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == dataset and all(name in run.tables for name in TABLES)]
        if not mine:
            continue
        digits, seeds = digits_for(mine[0].json["prepare"]["test"]), len(mine)
        scores = joined(mine, "tta").groupby(["views", "method", "metric"], sort=False)["value"].mean().reset_index()
        keys = ["view", "method", "metric"]
        alone = joined(mine, "tta_alone").groupby(keys, sort=False)[["value", "without"]].mean().reset_index()
        paired = _over_seeds(joined(mine, "tta_paired"))
        views = int(scores["views"].max())
        base = paired["method"].isin(METHODS) & (paired["method"] == paired["baseline"])
        gains = paired[base & paired["metric"].isin(SHOWN)]
        for column, order in (("method", list(METHODS)), ("metric", SHOWN)):
            gains = gains.sort_values(column, key=lambda names, order=order: names.map(order.index), kind="stable")
        own = paired[(paired["method"] == OURS) & (paired["baseline"] == TO_BEAT) & (paired["metric"] == "nll")]
        judged = _judged(pd.concat([gains, own]))
        same = judged["method"] == judged["baseline"]
        sentence = _sentence(judged[same], judged[~same], views, digits, seeds)
        shown = scores[scores["method"].isin(METHODS)]
        pictures = [
            ("NLL and ECE against the number of views averaged", _curves(shown)),
            ("change of NLL and ECE of every method by all views", _gains(gains, views)),
        ]
        last = scores[scores["views"] == views].set_index(["method", "metric"])["value"].to_dict()
        tables = [_changes(scores, gains, views, digits), _alone(alone, last, digits)]
        parts.append(Part(dataset, sentence, pictures, tables))
    return Section(
        name="tta",
        title="Test-time augmentation",
        question="Does the mean over several views of an image (itself, mirrored, a little shifted) make probabilities "
        "truer, and is that to attention's credit? Every method answers the same views, as it was tuned or fitted on "
        "the images alone; calibrations are fitted anew on the mean.",
        parts=parts,
        note="The historic study gave views to attention only, and read the fall of its NLL from 2.05 to .97 and of "
        "its ECE from .130 to .028 as attention's. p values in the sentence are adjusted by Holm's method within a "
        "dataset. Views come in a fixed order, on which the curve's steps depend; what each adds to all others is in "
        "the table. A view helps as far as the encoder has met its like in training (train_embedder.augment). Tables "
        "of numbers have no views.",
        command="dvc repro tta",
    )

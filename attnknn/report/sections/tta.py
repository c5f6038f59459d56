"""Test-time augmentation in the report: what several views of an image give every method, and what is attention's."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report.differences import OUT_OF_REACH, judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.plots import INK, METHODS, METRICS, as_png, method_colour, method_name, new_figure, style_axes
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import digits_for, fixed, method_cell, p_value

TABLES: dict[str, tuple[str, ...]] = {
    "tta": ("views", "method", "metric", "value", "low", "high"),
    "tta_alone": ("view", "method", "metric", "value", "without"),
    "tta_paired": (
        *("method", "baseline", "views", "baseline_views", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
}
SHOWN = ("nll", "ece")
OURS = "attention"
LIKE = {"attention": "bare", "attention_vector": "with vector scaling"}  # against distance weighting with the same
_PAIR = ["method", "baseline", "views", "baseline_views", "metric"]
_WORDS = {"better": "lower", "worse": "higher"}  # of SHOWN, where lower is better


def _moved(row: Any, digits: int, seeds: int) -> str:
    """A difference with its interval and p, and its sd where there are several seeds."""
    sd = f", ± {fixed(row['sd'], digits)} over {seeds} seeds" if seeds > 1 else ""
    ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
    p = p_value(row["p"])
    return f"{fixed(row['difference'], digits, True)} ({ends}{sd}, p {p if p.startswith('<') else '= ' + p})"


def _count(rows: pd.DataFrame) -> str:
    """For how many methods a score is lower, for how many higher, and for how many that is out of reach."""
    counts = {word: int((rows["finding"] == word).sum()) for word in ("lower", "higher")}
    named = " and ".join(f"{word} for {n}" for word, n in counts.items() if n)
    closed = rows.loc[rows["finding"].str.startswith(OUT_OF_REACH), "finding"].value_counts()
    why = "".join(str(text).replace(OUT_OF_REACH, f", {OUT_OF_REACH} for {n}") for text, n in closed.items())
    return f"{named or 'shown to differ for none'} of {len(rows)} methods{why}"


def _sentence(gains: pd.DataFrame, own: pd.DataFrame, views: int, digits: int, seeds: int) -> str:
    """What the views do for every method, and what is left to attention.

    Args:
        gains: base methods with all views against themselves with one view, NLL and ECE, judged.
        own: attention against distance weighting under each calibration of `LIKE` in NLL, with one view and with all,
            judged.
    """
    text = f"With the mean over {views} views"
    for metric in SHOWN:
        of = gains[gains["metric"] == metric]
        ours, others = of[of["method"] == OURS], of.loc[of["method"] != OURS, "difference"]
        text += f"{',' if metric == SHOWN[0] else ''} {METRICS[metric]} is {_count(of)}"
        if len(ours) and len(others):
            low, high = (fixed(end, digits, True) for end in (others.min(), others.max()))
            text += f": attention {_moved(ours.iloc[0], digits, seeds)}, the others {low} to {high}"
        text += ".\n" if metric == SHOWN[-1] else "."
    nll = gains[gains["metric"] == "nll"].set_index("method")["finding"]
    word, others = nll.get(OURS), nll.drop(OURS, errors="ignore")
    if word in ("lower", "higher"):
        alike = int((others == word).sum())
        shared = f"is an effect of the views, not of attention: {alike} of the {len(others)} others have it too."
        text += f"The {word} NLL {shared if alike else 'is shown for attention only.'}\n"
    found = own.set_index(["method", "views"]).to_dict("index")
    said = []
    for method, name in LIKE.items():
        if (method, views) in found:
            one, all_of = (found[method, n] for n in (1, views))
            said.append(
                f"both {name} {_moved(one, digits, seeds)} on the image alone, {one['finding']}, and "
                f"{_moved(all_of, digits, seeds)} with {views} views, {all_of['finding']}"
            )
    text += f"NLL of attention less that of distance weighting: {'; '.join(said)}." if said else ""
    return text.strip()


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
        style_axes(axes)
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
        style_axes(axes)
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


def _against(rows: pd.DataFrame, digits: int) -> Table:
    """Attention less distance weighting, both under the same calibration and on the same views.

    Args:
        rows: method, views, metric, difference, low, high, p.
    """
    table: list[Row] = []
    for (method, baseline, views), found in rows.groupby(["method", "baseline", "views"], sort=False):
        of = found.set_index("metric").to_dict("index")
        cells = []
        for metric in SHOWN:
            row = of[metric]
            ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
            cells += [Cell(fixed(row["difference"], digits, True), ends), p_value(row["p"])]
        table.append([method_cell(str(method)), method_cell(str(baseline)), str(views), *cells])
    head = ["method", "against", "views", "NLL", "p", "ECE", "p"]
    caption = "Attention less distance weighting, on the same views and under the same calibration; p is not adjusted."
    return Table("against", caption, head, table)


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


def section(runs: Sequence[Run], level: Level) -> Section:
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
        paired = over_runs(joined(mine, "tta_paired"), _PAIR)
        views = int(scores["views"].max())
        itself = paired["method"] == paired["baseline"]
        gains = paired[itself & paired["method"].isin(METHODS) & paired["metric"].isin(SHOWN)]
        for column, order in (("method", list(METHODS)), ("metric", SHOWN)):
            gains = gains.sort_values(column, key=lambda names, order=order: names.map(order.index), kind="stable")
        own = paired[~itself & paired["method"].isin(LIKE) & (paired["metric"] == "nll")]
        found = judged(pd.concat([gains, own]), level)
        found = found.assign(finding=found["finding"].replace(_WORDS))
        same = found["method"] == found["baseline"]
        sentence = _sentence(found[same], found[~same], views, digits, seeds)
        shown = scores[scores["method"].isin(METHODS)]
        pictures = [
            ("NLL and ECE against the number of views averaged", _curves(shown)),
            ("change of NLL and ECE of every method by all views", _gains(gains, views)),
        ]
        last = scores[scores["views"] == views].set_index(["method", "metric"])["value"].to_dict()
        tables = [
            _changes(scores, gains, views, digits),
            _against(paired[~itself], digits),
            _alone(alone, last, digits),
        ]
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
        "the table. A mean of views is less sure than one view: bare, that lowers the ECE of who was too sure and "
        "raises that of who was not. A view helps as far as the encoder has met its like in training "
        "(train_embedder.augment). The plain network is not among the methods: of its training (train_cnn) embeddings "
        "and logits of the images as they are are kept, and no weights that could answer views. Tables of numbers have "
        "no views.",
        command="dvc repro tta",
    )

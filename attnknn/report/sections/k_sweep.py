"""Every method at each k, and all methods at their best k."""

from collections.abc import Iterable, Sequence

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import OURS, TUNED, WITHOUT_NEIGHBOURS, combined_p, strongest, verdict
from attnknn.report.gains import too_few_errors
from attnknn.report.plots import HIGHER_IS_BETTER, METRICS, SOFT, method_colour, method_name
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import (
    by_dataset,
    comparison,
    difference_cell,
    digits_of,
    method_cell,
    p_value,
    paired_table,
)

SWEPT, PAIRED = "k_sweep", "k_sweep_paired"
TABLES: dict[str, tuple[str, ...]] = {
    SWEPT: ("k", "sqrt_n", "method", "metric", "validation", "value", "low", "high"),
    PAIRED: (
        *("method", "k", "baseline", "baseline_k", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
}
KNN = ("uniform", "distance", "distance_vector", OURS)
DRAWN = ("nll", "accuracy")
ALPHA = 0.01
_SHIFT = 1.055  # factor between the points of two methods at the same k
NOTE = (
    "At each k uniform and distance weighting are retuned on the val rows and attention is refitted. The best k has "
    "the lowest NLL on val; the test rows choose nothing. The verdict compares attention with the best of uniform "
    "and distance weighting, prototypes and the linear head on val, each with the k and the calibration, or none, of "
    "its own lowest NLL on val; p is of this one comparison, and significant below .01. Large dots are the best k; "
    "bars are intervals. √n is swept with its half and its double; k beyond the stored neighbours are left out, and "
    "the largest stored k replaces the double."
)


def best_rows(swept: pd.DataFrame) -> pd.DataFrame:
    """The rows of each seed and method at the k of its lowest NLL on val, the lowest k on a tie.

    Args:
        swept: rows of seed, k, method, metric, validation and more.
    """
    nll = swept[swept["metric"] == "nll"].sort_values(["validation", "k"], kind="stable")
    chosen = nll.groupby(["seed", "method"], sort=False).head(1)[["seed", "method", "k"]]
    return swept.merge(chosen, on=["seed", "method", "k"])


def _unique(values: pd.Series) -> str:
    """Every value once, in order."""
    return "/".join(map(str, sorted(set(values))))


def _compared(rows: pd.DataFrame, side: str) -> str:
    """The method on one side of paired rows, with its k; one per seed where they differ."""
    name = _unique(rows[side].map(method_name))
    ks = rows["k" if side == "method" else "baseline_k"].dropna().astype(int)
    return name if ks.empty else f"{name} at k = {_unique(ks)}"


def verdict_table(swept: pd.DataFrame, paired: pd.DataFrame, digits: int) -> tuple[Table, str]:
    """Attention at its best k against the best baseline on val at its best k, in NLL; table and verdict.

    Args:
        swept: rows of seed, k, method, metric, validation.
        paired: rows of seed, method, k, baseline, baseline_k, metric, difference, low, high, errors, p.
    """
    best = best_rows(swept)
    tests = paired[paired["metric"] == "nll"].assign(base=paired["baseline"].str.partition("_")[0])
    on_val = best.loc[best["metric"] == "nll", ["seed", "method", "validation"]].rename(columns={"method": "baseline"})
    rivals = tests.merge(on_val, on=["seed", "baseline"]).groupby("base", sort=False)["validation"].mean()
    rows = tests[tests["base"] == rivals.idxmin()]
    p, errors = combined_p(rows["p"].tolist()), int(rows["errors"].min())
    word = verdict(rows["difference"].tolist(), p, errors, "nll", ALPHA)
    means = {"difference": rows["difference"].mean(), "low": rows["low"].min(), "high": rows["high"].max()}
    names = _compared(rows, "method"), _compared(rows, "baseline")
    line = [*names, difference_cell(means, digits + 1), p_value(p), word, too_few_errors(errors)]
    head = ["method", "best baseline on val", "difference in NLL", "p", "verdict", ""]
    return Table("verdict", "Attention at its best k against the best baseline", head, [line], folded=False), word


def _without_neighbours(swept: pd.DataFrame) -> list[str]:
    """Prototypes and the linear head, if present, each with the calibration of its lowest NLL on val."""
    on_val = swept.assign(value=swept["validation"])
    return [strongest(on_val, "nll", [m]) for m in WITHOUT_NEIGHBOURS if m in set(swept["method"])]


def picture(swept: pd.DataFrame) -> bytes:
    """NLL and accuracy over k; large dots are the best k, horizontal lines are methods without neighbours.

    Args:
        swept: rows of seed, k, sqrt_n, method, metric, validation, value, low, high; several seeds are averaged, and a
            bar spans the outer ends of their intervals.
    """
    best = best_rows(swept)
    points = mean_over_runs(swept, ["metric", "method", "k"]).reset_index().sort_values("k")
    ks, root = sorted(swept["k"].unique()), sorted(set(swept.loc[swept["sqrt_n"], "k"]))
    constant = _without_neighbours(swept)
    present = [*(m for m in KNN if m in set(swept["method"])), *constant]
    figure = plots.new_figure(3.4, 5.3)
    panels = figure.subplots(len(DRAWN), 1, sharex=True)
    for axes, metric in zip(panels, DRAWN, strict=True):
        for k in root:
            axes.axvline(k, color=SOFT, lw=1, ls=":", zorder=1)
        for i, method in enumerate(present):
            values = points[(points["metric"] == metric) & (points["method"] == method)].set_index("k")
            style = {"color": method_colour(method), "label": method_name(method)}
            if method in constant:
                axes.axhline(values["value"].iloc[0], lw=1.2, ls="--", zorder=2, **style)
                continue
            # Shifted, so that overlapping points stay visible.
            shift = _SHIFT ** (i - 1.5)
            x = values.index.to_numpy() * shift
            axes.vlines(x, values["low"], values["high"], color=style["color"], lw=1.1, alpha=0.45, zorder=2)
            axes.plot(x, values["value"], lw=2 if method == OURS else 1.3, marker="o", ms=2.5, zorder=4, **style)
            chosen = sorted(set(best.loc[best["method"] == method, "k"]))
            dots = [k * shift for k in chosen], values["value"][chosen]
            axes.plot(*dots, "o", color=style["color"], mec="white", mew=0.8, ms=7, zorder=6)
        direction = "higher" if metric in HIGHER_IS_BETTER else "lower"
        plots.title(axes, f"{METRICS[metric]}, {direction} is better", 9.5)
        axes.margins(y=0.08)
        plots.style_axes(axes)
    panels[-1].set_xscale("log")
    plots.k_ticks(panels[-1], ks)
    panels[-1].set_xlabel("neighbours k (dotted: √n)" if root else "neighbours k")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", fontsize=7, frameon=False, handlelength=1.6)
    return plots.as_png(figure)


def _lines(rows: pd.DataFrame, methods: Iterable[str], digits: int, ks: dict[str, str] | None = None) -> list[Row]:
    """Scores of the methods, after their k if known."""
    return [
        [method_cell(m), *([ks[m]] if ks is not None else []), *(cells.get(name, "–") for name in METRICS)]
        for m, cells in comparison(rows[rows["method"].isin(set(methods))], digits).items()
    ]


def _tables(swept: pd.DataFrame, paired: pd.DataFrame, digits: int) -> list[Table]:
    best = best_rows(swept)
    shown = {*KNN, *WITHOUT_NEIGHBOURS, *_without_neighbours(swept), *paired["method"], *paired["baseline"]}
    ks = {
        m: _unique(best.loc[best["method"] == m, "k"]) if m.partition("_")[0] in (*TUNED, OURS) else ""
        for m in set(best["method"])
    }
    by_k: list[Row] = []
    for k, rows in swept[swept["method"].isin(KNN)].groupby("k", sort=True):
        by_k.append([f"k = {k}{', √n' if rows['sqrt_n'].any() else ''}"])
        by_k += _lines(rows, KNN, digits)
    head = list(METRICS.values())
    return [
        Table("best", "All methods at their best k", ["method", "k", *head], _lines(best, shown, digits, ks)),
        Table("by_k", "All methods at each k", ["method", *head], by_k),
        paired_table(paired, digits),
    ]


def _part(runs: Sequence[Run]) -> Part:
    swept, paired, digits = joined(runs, SWEPT), joined(runs, PAIRED), digits_of(runs)
    table, word = verdict_table(swept, paired, digits)
    text = f"{runs[0].dataset}: NLL and accuracy of every method over the number of neighbours"
    return Part(runs[0].dataset, [(text, picture(swept))], [table, *_tables(swept, paired, digits)], word)


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "k_sweep",
        "Number of neighbours",
        "How much does the number of neighbours matter, and is attention better where every method has its best k? All "
        "methods at each k, by slices of the same stored neighbours.",
        by_dataset(runs, _part, SWEPT, PAIRED),
        NOTE,
        "dvc exp run -S 'k_sweep.ks=[1,10,50]'",
    )

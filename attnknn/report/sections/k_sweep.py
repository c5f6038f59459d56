"""How many neighbours: every method at each k, and all of them at their best."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from attnknn.report.claims import FEWEST_ERRORS, combined_p, strongest, verdict
from attnknn.report.plots import (
    HIGHER_IS_BETTER,
    INK,
    METRICS,
    SOFT,
    as_png,
    method_colour,
    method_name,
    new_figure,
    style_axes,
)
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, comparison, digits_of, fixed, method_cell, p_value, paired_table

SWEPT, PAIRED = "k_sweep", "k_sweep_paired"
TABLES: dict[str, tuple[str, ...]] = {
    SWEPT: ("k", "sqrt_n", "method", "metric", "validation", "value", "low", "high"),
    PAIRED: (
        "method",
        "k",
        "baseline",
        "baseline_k",
        "metric",
        "difference",
        "low",
        "high",
        "errors",
        "p",
        "test",
    ),
}
OURS = "attention"
KNN = ("uniform", "distance", "distance_vector", OURS)
TUNED = ("uniform", "distance", OURS)  # whose k means something
WITHOUT_NEIGHBOURS = ("prototypes", "linear")
DRAWN = ("nll", "accuracy")
ALPHA = 0.01
_APART = 1.055  # factor between the dots of two methods at the same k
NOTE = (
    "At each k uniform and distance weighting are tuned anew on the val rows and attention is fitted anew, so no "
    "method is shown a k that it was not made for. The best k is the one of lowest NLL on val; the test rows choose "
    "nothing. Attention and what it is tested against (uniform and distance weighting, prototypes, the linear head) "
    "have the k and the calibration, or none, of their own lowest NLL on val. Large dots are the best k; bars are 95 % "
    "intervals unless params.yaml says otherwise. √n is swept with its half and its double; what is not stored is left "
    "out, and the largest k that is stored stands for the double. The p value of the sentence is of the one comparison "
    "it names, and counts as a finding below .01."
)


def best_rows(swept: pd.DataFrame) -> pd.DataFrame:
    """The rows of each seed and method at the k of its lowest NLL on val, the lowest k on a tie.

    Args:
        swept: rows of seed, k, method, metric, validation and more.
    """
    nll = swept[swept["metric"] == "nll"].sort_values(["validation", "k"], kind="stable")
    chosen = nll.groupby(["seed", "method"], sort=False).head(1)[["seed", "method", "k"]]
    return swept.merge(chosen, on=["seed", "method", "k"])


def _ks(rows: pd.DataFrame, method: str) -> str:
    """The best k of a method, one a seed where they differ."""
    return _all(rows.loc[rows["method"] == method, "k"])


def _all(values: pd.Series) -> str:
    """Every value once, in order."""
    return "/".join(map(str, sorted(set(values))))


def _base(methods: pd.Series) -> pd.Series:
    """Methods without their calibration."""
    return methods.str.partition("_")[0]


def _compared(rows: pd.DataFrame, side: str) -> str:
    """Who stands on one side of paired rows, by name and k; one a seed where they differ."""
    name = "/".join(sorted({method_name(m) for m in rows[side]}))
    ks = rows["k" if side == "method" else "baseline_k"].dropna().astype(int)
    return name if ks.empty else f"{name} at k = {_all(ks)}"


def beyond(swept: pd.DataFrame, k_eval: int, digits: int) -> str:
    """Whose best k is above what the main comparison allows, and the NLL on test that this leaves there.

    Args:
        swept: rows of seed, k, method, metric, validation, value.
        k_eval: the most neighbours of the main comparison; the largest swept k that is no larger stands for it.
    """
    best, nll = best_rows(swept), swept[swept["metric"] == "nll"]
    allowed = max((k for k in nll["k"] if k <= k_eval), default=int(nll["k"].min()))
    above, within = [], []
    for m in (m for m in KNN if m in set(nll["method"])):
        top = best[(best["metric"] == "nll") & (best["method"] == m)]
        if (top["k"] <= k_eval).all():
            within.append(method_name(m))
            continue
        here = nll.loc[(nll["method"] == m) & (nll["k"] == allowed), "value"].mean()
        moves = f"{fixed(here, digits)} at k = {allowed}, {fixed(top['value'].mean(), digits)} at k = {_all(top['k'])}"
        above.append(f"{method_name(m)} (NLL {moves})")
    parts = [f"beyond it for {', '.join(above)}"] * bool(above) + [f"within it for {', '.join(within)}"] * bool(within)
    return f"The main comparison allows k_eval = {k_eval}; the best k is {', and '.join(parts)}."


def sentence(swept: pd.DataFrame, paired: pd.DataFrame, k_eval: int, digits: int) -> tuple[str, str]:
    """What was found on one dataset, and its verdict: is attention at its best k better than the best baseline at its?

    Args:
        swept: rows of seed, k, sqrt_n, method, metric, validation, value.
        paired: rows of seed, method, k, baseline, baseline_k, metric, difference, low, high, errors, p.
        k_eval: see `beyond`.
    """
    best, nll = best_rows(swept), swept[swept["metric"] == "nll"]
    present = [m for m in KNN if m in set(swept["method"])]
    root = sorted(set(swept.loc[swept["sqrt_n"], "k"]))
    where = f"√n is {root[0]}" if root else "√n is above what is stored"
    said = [f"Best k by NLL on val: {', '.join(f'{method_name(m)} {_ks(best, m)}' for m in present)}; {where}."]
    lowest, highest = int(nll["k"].min()), int(nll["k"].max())
    moves = []
    for m in present:
        of = nll[nll["method"] == m]
        first, last = (of.loc[of["k"] == k, "value"].mean() for k in (lowest, highest))
        top = best.loc[(best["method"] == m) & (best["metric"] == "nll"), "value"]
        spread = f" ± {fixed(float(top.std()), digits)}" if len(top) > 1 else ""
        moves.append(
            f"{method_name(m)} {fixed(first, digits)} → {fixed(top.mean(), digits)}{spread} → {fixed(last, digits)}"
        )
    said.append(f"NLL at k = {lowest}, at the best k and at k = {highest}: {'; '.join(moves)}.")
    said.append(beyond(swept, k_eval, digits))
    of_nll = paired[paired["metric"] == "nll"].assign(base=_base(paired["baseline"]))
    on_val = best.loc[best["metric"] == "nll", ["seed", "method", "validation"]].rename(columns={"method": "baseline"})
    rivals = of_nll.merge(on_val, on=["seed", "baseline"]).groupby("base", sort=False)["validation"].mean()
    mine = of_nll[of_nll["base"] == rivals.idxmin()]
    p, errors = combined_p(mine["p"].tolist()), int(mine["errors"].min())
    found = verdict(mine["difference"].tolist(), p, errors, "nll", ALPHA)
    ends = f"{fixed(mine['low'].min(), digits + 1, True)} … {fixed(mine['high'].max(), digits + 1, True)}"
    words = {
        "yes": "has a lower NLL than",
        "no": "has a higher NLL than",
        "undecided": "shows no difference in NLL from",
    }
    said.append(
        f"{_compared(mine, 'method')} {words[found]} the best baseline on val, {_compared(mine, 'baseline')}: "
        f"{fixed(mine['difference'].mean(), digits + 1, True)} ({ends}, p {p_value(p)})."
    )
    if errors < FEWEST_ERRORS:
        said.append(f"With {errors} wrong test rows, fewer than {FEWEST_ERRORS}, nothing can be shown here.")
    return "\n".join(said), found


def _without_neighbours(swept: pd.DataFrame) -> list[str]:
    """Prototypes and the linear head, where there is one, each with the calibration of its lowest NLL on val."""
    on_val = swept.assign(value=swept["validation"])
    return [strongest(on_val, "nll", [m]) for m in WITHOUT_NEIGHBOURS if m in set(swept["method"])]


def picture(swept: pd.DataFrame) -> bytes:
    """NLL and accuracy against k; large dots are the best k, level lines are methods without neighbours.

    Args:
        swept: rows of seed, k, sqrt_n, method, metric, validation, value, low, high; several seeds are averaged, and a
            bar spans their furthest ends.
    """
    best = best_rows(swept)
    points = swept.groupby(["metric", "method", "k"], sort=True).agg(
        value=("value", "mean"), low=("low", "min"), high=("high", "max")
    )
    ks, root = sorted(swept["k"].unique()), sorted(set(swept.loc[swept["sqrt_n"], "k"]))
    level = _without_neighbours(swept)
    present = [*(m for m in KNN if m in set(swept["method"])), *level]
    figure = new_figure(3.4, 5.3)
    panels = figure.subplots(len(DRAWN), 1, sharex=True)
    for axes, metric in zip(panels, DRAWN, strict=True):
        for k in root:
            axes.axvline(k, color=SOFT, lw=1, ls=":", zorder=1)
        if root and metric == DRAWN[0]:
            axes.annotate(
                "√n",
                (root[0], 1),
                xycoords=("data", "axes fraction"),
                size=8,
                color="#777777",
                ha="center",
                va="bottom",
            )
        for i, method in enumerate(present):
            of: Any = points.loc[(metric, method)]
            colour, ours = method_colour(method), method == OURS
            if method in level:
                axes.axhline(of["value"].iloc[0], color=colour, lw=1.2, ls="--", zorder=2, label=method_name(method))
                continue
            # A little apart, so that the bars of methods that agree can be told apart.
            x = of.index.to_numpy() * _APART ** (i - 1.5)
            axes.vlines(x, of["low"], of["high"], color=colour, lw=1.1, alpha=0.45, zorder=2)
            axes.plot(
                x,
                of["value"],
                color=colour,
                lw=2 if ours else 1.3,
                marker="o",
                ms=2.5,
                zorder=5 if ours else 4,
                label=method_name(method),
            )
            marked = sorted(set(best.loc[best["method"] == method, "k"]))
            axes.plot(
                [k * _APART ** (i - 1.5) for k in marked],
                [of["value"][k] for k in marked],
                "o",
                color=colour,
                mec="white",
                mew=0.8,
                ms=7,
                zorder=6,
            )
        title = f"{METRICS[metric]}, {'higher' if metric in HIGHER_IS_BETTER else 'lower'} is better"
        axes.set_title(title, loc="left", size=9.5, weight="bold", color=INK, pad=12 if metric == DRAWN[0] else 6)
        axes.margins(y=0.08)
        style_axes(axes)
    panels[-1].set_xscale("log")
    shown = [k for i, k in enumerate(ks) if i in (0, len(ks) - 1) or (k / ks[i - 1] > 1.3 and ks[-1] / k > 1.35)]
    panels[-1].set_xticks(shown, [str(k) for k in shown])
    panels[-1].minorticks_off()
    panels[-1].set_xlabel("neighbours k")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        fontsize=7,
        frameon=False,
        handlelength=1.6,
    )
    return as_png(figure)


def _cells(
    rows: pd.DataFrame, methods: Iterable[str], digits: int, extra: dict[str, str] | None = None
) -> list[Sequence[str | Cell]]:
    return [
        [method_cell(m), *([extra[m]] if extra is not None else []), *(of.get(name, "–") for name in METRICS)]
        for m, of in comparison(rows[rows["method"].isin(set(methods))], digits).items()
    ]


def _tables(swept: pd.DataFrame, paired: pd.DataFrame, digits: int) -> list[Table]:
    best = best_rows(swept)
    ks = {m: _ks(best, m) if m.partition("_")[0] in TUNED else "" for m in set(best["method"])}
    shown = {*KNN, *WITHOUT_NEIGHBOURS, *_without_neighbours(swept), *paired["method"], *paired["baseline"]}
    by_k: list[Sequence[str | Cell]] = []
    for k, of in swept[swept["method"].isin(KNN)].groupby("k", sort=True):
        by_k.append([f"k = {k}{', √n' if of['sqrt_n'].any() else ''}"])
        by_k += _cells(of, KNN, digits)
    head = list(METRICS.values())
    return [
        Table("best", "Every method at its best k", ["method", "k", *head], _cells(best, shown, digits, ks)),
        Table("by_k", "Every method at each k", ["method", *head], by_k),
        paired_table(paired, digits),
    ]


def _part(runs: Sequence[Run]) -> Part:
    swept, paired, digits = joined(runs, SWEPT), joined(runs, PAIRED), digits_of(runs)
    words, found = sentence(swept, paired, runs[0].json["headroom"]["k"], digits)
    text = f"{runs[0].dataset}: NLL and accuracy of every method against the number of neighbours"
    return Part(runs[0].dataset, words, [(text, picture(swept))], _tables(swept, paired, digits), found)


def section(runs: Sequence[Run]) -> Section:
    """Every method at each k, for every dataset where the stage ran."""
    return Section(
        "k_sweep",
        "How many neighbours",
        "How much does the number of neighbours matter, and does attention win where everybody has the k that suits "
        "them best? Every method at each k, by slices of the same stored neighbours.",
        by_dataset([r for r in runs if SWEPT in r.tables and PAIRED in r.tables], _part),
        NOTE,
        "dvc exp run -S 'k_sweep.ks=[1,10,50]'",
    )

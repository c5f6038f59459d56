"""Hard queries: how many there are, how the methods fare on them, and what weight on them changes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS, OURS
from attnknn.report.differences import judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import arrow, by_dataset, digits_of, fixed, p_value

TABLES: dict[str, tuple[str, ...]] = {
    "hard": ("subset", "rows", "method", "repeat", "metric", "value", "low", "high"),
    "hard_paired": (
        *("subset", "rows", "method", "repeat", "baseline", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
    "hard_share": ("part", "class", "rows", "hard"),
}
WEIGHTED = "attention_weighted"
SUBSETS = ("all", "hard", "easy")
_NAMES = {
    WEIGHTED: "Attention, hard weighted",
    "attention_configured": "Attention, as configured",
    "distance_weighted": "Distance, hard weighted",
    "distance_weighted_vector": "Distance, hard w. + vector",
}
_METRICS = ("accuracy", "nll", "ece")
_MOST_CLASSES = 12
_NOTHING = 1e-4  # what no picture needs to tell from 0
Moves = dict[tuple[str, str], dict[str, Any]]


def _name(method: str) -> str:
    return _NAMES.get(method, plots.method_name(method))


def _colour(method: str) -> str:
    return plots.method_colour("attention" if method.startswith("attention") else method.replace("_weighted", ""))


def _order(methods: Sequence[str]) -> list[str]:
    """Each weighted variant under what it is a variant of, in the order of `plots.METHODS`."""
    known = [m for m in plots.METHODS if m in methods]
    rest = {m: m.replace("_weighted", "").replace("_configured", "") for m in methods if m not in plots.METHODS}
    return [name for m in known for name in (m, *(v for v, of in rest.items() if of == m))]


def moves_of(paired: pd.DataFrame, method: str, baseline: str, level: Level) -> Moves:
    """A method less a baseline over seeds and repeats; verdicts of all rows alone, adjusted for the metrics.

    The hard rows are picked by their true classes, which the method does not know, so what is better on them alone is
    no verdict.

    Returns:
        By (subset, metric) what `differences.over_runs` tells, and `differences.judged` where the subset is "all";
        elsewhere `verdict` is empty and `finding` "not asked".
    """
    mine = paired[(paired["method"] == method) & (paired["baseline"] == baseline)]
    if mine.empty:
        return {}
    rows = over_runs(mine, ("subset", "metric"))
    whole = rows["subset"] == "all"
    told = pd.concat([judged(rows[whole], level), rows[~whole].assign(verdict="", finding="not asked")])
    return {(row["subset"], row["metric"]): row for row in told.to_dict("records")}  # type: ignore[misc]


def _few(moves: Moves) -> bool:
    """Whether too few test rows are wrong for any difference to mean something."""
    return moves["all", "nll"]["errors"] < FEWEST_ERRORS


def _moved(row: Mapping[str, Any], digits: int) -> str:
    ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
    return f"{fixed(row['difference'], digits, True)} ({ends}; p {p_value(row['p'])})"


def sentence(shares: pd.DataFrame, scores: pd.DataFrame, moves: Moves, other: Moves, digits: int) -> str:
    """How many test rows are hard, and whether weight on hard queries pays on all of them.

    Args:
        shares: part, class, rows, hard. scores: subset, rows, method, metric, value, over runs.
        moves, other: `moves_of` attention and of distance weighting with weight less the same without.
    """
    test = shares[shares["part"] == "test"]
    hard, rows = int(test["hard"].sum()), int(test["rows"].sum())
    text = f"{hard:,} of {rows:,} test rows are hard ({hard / rows:.1%}). " if hard else "No test row is hard. "
    ours = scores[(scores["method"] == OURS) & (scores["metric"] == "accuracy")].groupby("subset")
    errors = {name: float(((1 - of["value"]) * of["rows"]).mean()) for name, of in ours}
    if errors.get("hard") and errors["all"]:
        text += f"They hold {min(1.0, errors['hard'] / errors['all']):.0%} of attention's errors. "
    nll = moves["all", "nll"]
    if _few(moves):
        wrong = f"{nll['errors']} wrong test rows of {FEWEST_ERRORS} needed"
        return f"{text}What weight on hard queries changes is out of reach: {wrong}."
    means = {"yes": "so the weight pays", "no": "so the weight costs more than it brings"}
    text += f"With weight on hard queries, attention's NLL on all test rows changes by {_moved(nll, digits)}: "
    text += f"{means.get(nll['verdict'], nll['finding'])}."
    if ("hard", "nll") in moves:
        parts = [fixed(moves[s, "nll"]["difference"], digits, True) for s in ("hard", "easy")]
        text += f" It is {parts[0]} on the hard rows and {parts[1]} on the easy ones."
    accuracy = moves["all", "accuracy"]
    better = {"yes": "is higher", "no": "is lower"}.get(accuracy["verdict"], "is not shown to change")
    text += f" Its accuracy {better} ({fixed(accuracy['difference'], digits, True)})."
    if ("all", "nll") in other:
        row = other["all", "nll"]
        text += f" Distance weighting tuned with the same weights: NLL {_moved(row, digits)}, {row['finding']}."
    return text


def subsets_picture(scores: pd.DataFrame, metric: str) -> bytes:
    """One metric of every method on the hard rows and on the easy ones, side by side, each on its own scale.

    Args:
        scores: subset, method, value, low, high: one row a subset and method.
    """
    subsets = [s for s in ("hard", "easy") if s in set(scores["subset"])] or ["all"]
    methods = _order(list(dict.fromkeys(scores["method"])))
    figure = plots.new_figure(3.4, 0.8 + 0.2 * len(methods))
    panels = figure.subplots(1, len(subsets), sharey=True, squeeze=False)[0]
    for axes, subset in zip(panels, subsets, strict=True):
        of = scores[scores["subset"] == subset].set_index("method")
        for y, method in enumerate(methods):
            colour, row = _colour(method), of.loc[method]
            axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=1.8, alpha=0.6, solid_capstyle="butt")
            filled = colour if method in plots.METHODS else "white"
            axes.plot(row["value"], y, "o", mfc=filled, mec=colour, color=colour, ms=4.2)
        axes.set_title(f"{subset} rows", loc="left", size=8.5, color=plots.INK)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=3)
        plots.style_axes(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=7)
        axes.grid(axis="y", color="#eeeeee", lw=0.6)
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(methods)), [_name(m) for m in methods])
    figure.suptitle(plots.METRICS[metric], x=0.01, ha="left", size=10, weight="bold", color=plots.INK)
    return plots.as_png(figure)


def moves_picture(moves: Moves, other: Moves, metric: str) -> bytes:
    """What weight on hard queries changes in one metric, on all rows first: attention, and distance weighting."""
    lines = [
        (subset, name, found[subset, metric], colour)
        for subset in SUBSETS
        for name, found, colour in (
            ("attention", moves, plots.method_colour("attention")),
            ("distance", other, plots.method_colour("distance")),
        )
        if (subset, metric) in found
    ]
    figure = plots.new_figure(3.4, 0.85 + 0.22 * len(lines))
    axes = figure.subplots()
    axes.axvline(0, color=plots.INK, lw=0.8, zorder=1)
    for y, (subset, _, row, colour) in enumerate(lines):
        alpha = 1.0 if subset == "all" else 0.55
        axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=2, alpha=alpha, solid_capstyle="butt")
        axes.plot(row["difference"], y, "o", color=colour, ms=4.5, alpha=alpha)
    axes.set_yticks(range(len(lines)), [f"{subset} rows, {name}" for subset, name, _, _ in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    if max(abs(x) for x in axes.get_xlim()) < _NOTHING:
        axes.set(xlim=(-_NOTHING, _NOTHING), xticks=[0])  # no axis for rounding
    else:
        axes.locator_params(axis="x", nbins=4)
    side = "right" if metric in plots.HIGHER_IS_BETTER else "left"
    axes.set_title(f"{plots.METRICS[metric]}: weighted − not", loc="left", size=10, weight="bold", color=plots.INK)
    axes.set_xlabel(f"difference ({side} of 0: weight is better)")
    plots.style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return plots.as_png(figure)


def classes_picture(shares: pd.DataFrame) -> bytes:
    """The share of each class's test rows that is hard, the largest first.

    Args:
        shares: class, rows, hard.
    """
    found = shares.assign(share=100 * shares["hard"] / shares["rows"].clip(lower=1))
    found = found.sort_values("share", ascending=False, kind="stable").head(_MOST_CLASSES).reset_index(drop=True)
    figure = plots.new_figure(3.4, 0.75 + 0.2 * len(found))
    axes = figure.subplots()
    axes.barh(found.index, found["share"], color=plots.method_colour("distance"), height=0.65)
    for y, share in enumerate(found["share"]):
        axes.annotate(f"{share:.0f} %", (share, y), (3, 0), textcoords="offset points", va="center", size=7.5)
    axes.set_yticks(found.index, [str(name)[:18] for name in found["class"]])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(0, max(1.0, 1.15 * found["share"].max()))
    axes.set_title("Where hard queries come from", loc="left", size=10, weight="bold", color=plots.INK)
    axes.set_xlabel("hard test rows of the class (%)")
    plots.style_axes(axes)
    axes.tick_params(axis="y", length=0)
    return plots.as_png(figure)


def _scores_table(scores: pd.DataFrame, digits: int) -> Table:
    """All methods by subset; a heading for each subset."""
    rows: list[list[str | Cell]] = []
    for subset in [s for s in SUBSETS if s in set(scores["subset"])]:
        of = scores[scores["subset"] == subset]
        rows.append([f"{subset}: {int(of['rows'].max()):,} rows"])
        table: Any = of.set_index(["method", "metric"])
        for method in _order(list(dict.fromkeys(of["method"]))):
            cells = [table.loc[(method, metric)] for metric in _METRICS]
            around = [
                Cell(fixed(c["value"], digits), f"{fixed(c['low'], digits)} … {fixed(c['high'], digits)}")
                for c in cells
            ]
            rows.append([Cell(_name(method), method=method), *around])
    note = "Means over seeds and repeats, with the furthest ends of their intervals."
    return Table(
        "scores", "Every method on all, hard and easy test rows", ["method", *map(arrow, _METRICS)], rows, note
    )


def _moves_table(found: dict[str, Moves], digits: int) -> Table:
    rows: list[list[str | Cell]] = []
    for name, moves in found.items():
        if not moves:
            continue
        rows.append([name])
        for (subset, metric), row in moves.items():
            rows.append([f"{subset}, {plots.METRICS[metric]}", _moved(row, digits + 1), row["finding"]])
    note = "p of all rows is adjusted for the three metrics (Holm); hard and easy rows get no verdict of their own."
    return Table("weight", "What weight on hard queries changes", ["on", "difference", "finding"], rows, note)


def _shares_table(shares: pd.DataFrame) -> Table:
    parts = [p for p in ("fit", "val", "test") if p in set(shares["part"])]
    table: Any = shares.set_index(["part", "class"])
    names = list(dict.fromkeys(shares["class"]))
    rows = [
        [str(name), *(f"{int(table.loc[(p, name), 'hard'])} of {int(table.loc[(p, name), 'rows']):,}" for p in parts)]
        for name in names
    ]
    sums: Any = shares.groupby("part")[["hard", "rows"]].sum()
    rows.append(["all", *(f"{int(sums.loc[p, 'hard'])} of {int(sums.loc[p, 'rows']):,}" for p in parts)])
    return Table("shares", "Hard rows of each class", ["class", *parts], rows, "Of the first seed.")


def _part(runs: Sequence[Run], level: Level) -> Part:
    digits = digits_of(runs)
    paired, every = joined(runs, "hard_paired"), joined(runs, "hard")
    scores = every.groupby(["subset", "method", "metric"], sort=False).agg(
        rows=("rows", "max"), value=("value", "mean"), low=("low", "min"), high=("high", "max")
    )
    scores = scores.reset_index()
    moves, other, recalibrated = (
        moves_of(paired, *pair, level)
        for pair in (
            (WEIGHTED, OURS),
            ("distance_weighted", "distance"),
            ("distance_weighted_vector", "distance_vector"),
        )
    )
    shares = joined(runs, "hard_share")
    pooled = shares.groupby(["part", "class"], sort=False)[["rows", "hard"]].sum().reset_index()
    test = pooled[pooled["part"] == "test"]
    text = sentence(pooled, scores, moves, other, digits)
    if len(runs) > 1:
        sd = fixed(moves["all", "nll"]["sd"], digits + 1)
        spread = "" if _few(moves) else f" The change in NLL has ± {sd} over seeds and repeats."
        text += f"{spread} Counts are sums over {len(runs)} seeds."
    pictures = [
        (f"{plots.METRICS[m]} on hard and easy rows", subsets_picture(scores[scores["metric"] == m], m))
        for m in ("nll", "accuracy")
    ]
    if not _few(moves):
        pictures.append(("what weight on hard queries changes in NLL", moves_picture(moves, other, "nll")))
    if test["hard"].sum():
        pictures.append(("share of hard test rows by class", classes_picture(test)))
    weighed = {"Attention": moves, "Distance-weighted kNN": other, "Distance + vector scaling": recalibrated}
    tables = [_scores_table(scores, digits), _moves_table(weighed, digits)]
    first = shares[shares["seed"] == runs[0].seed]
    return Part(runs[0].dataset, text, pictures, [*tables, _shares_table(first)], moves["all", "nll"]["verdict"])


def section(runs: Sequence[Run], level: Level) -> Section:
    """Queries whose neighbourhood disagrees with them."""
    return Section(
        "hard",
        "Hard queries",
        "A query is hard if at least a set share of its neighbours, by default half (hard.disagreement), carry another "
        "class than its own. How many are there, how does each method answer them, and does it pay to fit with more "
        "weight on them? Everything else is equal, seeds too; distance weighting is tuned with the same weights.",
        by_dataset([r for r in runs if "hard" in r.tables], lambda of: _part(of, level)),
        "Hard rows are picked by their true class, which no method knows: whoever trusts its neighbours less looks "
        "better there and pays on the easy rows. So the verdict is that of all test rows. Every head is stopped by the "
        "plain NLL on val. Open circles are fitted or "
        "tuned with weight. The hardest test rows are shown under “Which examples decided”.",
        "dvc exp run -S hard.weight=5.0",
    )

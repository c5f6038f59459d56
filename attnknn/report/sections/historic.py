"""The historic study: its tables and curves beside ours, and its conclusions tested on our runs."""

from collections.abc import Sequence

import pandas as pd

from attnknn.report import historic
from attnknn.report.conclusions import Conclusion, conclusions
from attnknn.report.gains import Level
from attnknn.report.historic import CIFAR10, EXPERIMENTS, IRIS, Number
from attnknn.report.plots import (
    INK,
    METRICS,
    as_png,
    legend_below,
    method_colour,
    method_name,
    new_figure,
    style_axes,
    title,
)
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, fixed

# It reads what the other experiments wrote.
TABLES: dict[str, tuple[str, ...]] = {}
OURS = "ours"
Scores = dict[tuple[float, str, str], float]  # (x, method, metric) → value
_NAMES = {"attention_tta": "Attention + TTA", "attention_ensemble": "Attention + k-ensemble"}
# table: (column, caption, x label, prefix of its conditions, x of the unmodified bank)
_CAPTIONS = {
    "main": ("", "The main comparison", "", "", 0.0),
    "k_sweep": ("k", "Over the number of neighbours", "k", "", 0.0),
    "noise": (
        *("wrong labels", "Wrong labels in the bank (symmetric)", "share of wrong labels in the bank"),
        *("noise ", 0.0),
    ),
    "imbalance": ("rarest / largest", "A long tail in the bank", "rarest class / largest class", "long tail ", 1.0),
}
_PAST = "#9c9c9c"
_INDEXES = {"flat L2": "flat_l2", "flat IP": "flat_ip", "HNSW": "hnsw"}


def _data(dataset: str) -> tuple[tuple[Number, ...], str]:
    """The historic numbers comparable with a dataset, and the limits of the comparison; empty for most."""
    if dataset == "iris":
        return IRIS, "Split and encoder differ, and 30 test rows vary by a few points."
    if dataset == "cifar10":
        return CIFAR10, "The images are the same; encoder and split differ."
    if dataset.startswith("cifar10_"):
        return CIFAR10, "This is a harder copy of CIFAR-10, and the encoder differs."
    return (), ""


def _order(preset: str) -> list[str]:
    """The experiments, that of the preset first."""
    return sorted(EXPERIMENTS, key=lambda name: preset not in EXPERIMENTS[name])


def _mean(rows: pd.DataFrame) -> Scores:
    """Means over runs of rows of x, method, metric, value."""
    return rows.groupby(["x", "method", "metric"], sort=False)["value"].mean().to_dict()  # type: ignore[return-value]


def ours(runs: Sequence[Run], table: str) -> Scores:
    """Our numbers for one historic table, as far as the runs have them; means over seeds and repeats.

    Args:
        table: main, k_sweep, noise or imbalance.
    """
    *_, prefix, unmodified = _CAPTIONS[table]
    clean, rows = joined(runs, "intervals"), joined(runs, table)
    if table == "k_sweep":
        return {} if rows.empty else _mean(rows.assign(x=rows["k"].astype(float)))
    scores = {} if clean.empty else _mean(clean.assign(x=unmodified))
    if prefix:
        if rows.empty:
            return {}
        rows = rows[rows["condition"].str.startswith(prefix)]
        return scores | _mean(rows.assign(x=rows["condition"].str.removeprefix(prefix).astype(float)))
    views, ensemble = joined(runs, "tta"), joined(runs, "ensemble")
    if not views.empty:
        rows = views[(views["views"] == views["views"].max()) & (views["method"] == "attention")]
        scores |= _mean(rows.assign(x=0.0, method="attention_tta"))
    if not ensemble.empty:
        rows = ensemble[(ensemble["variant"] == "k_ensemble") & (ensemble["method"] == "attention")]
        scores |= _mean(rows.assign(x=0.0, method="attention_ensemble"))
    return scores


def _compared(
    table: str, numbers: Sequence[Number], scores: Scores, order: Sequence[str], seeds: int, settings: str, limits: str
) -> Table | None:
    """One historic table, one column per experiment, ours first; None without any number of ours.

    Args:
        settings: of our runs, as text.
        limits: of the comparison.
    """
    theirs: dict[tuple[float, str, str], dict[str, str]] = {}
    for n in numbers:
        if n.table == table:
            text = " / ".join(fixed(value, 4) for value in n.values)
            theirs.setdefault((n.x, n.method, n.metric), {})[n.experiment] = text
    if not any(key in scores for key in theirs):
        return None
    shown = [name for name in order if any(name in row for row in theirs.values())]
    column, caption, *_ = _CAPTIONS[table]
    rows = []
    for key in sorted(theirs, key=lambda key: list(METRICS).index(key[2])):
        x, method, metric = key
        base = method.removesuffix("_tta").removesuffix("_ensemble")
        names = [
            METRICS[metric],
            *([f"{x:g}"] if column else []),
            Cell(_NAMES.get(method) or method_name(method), method=base),
        ]
        own = fixed(scores[key], 4) if key in scores else "–"
        rows.append([*names, own, *(theirs[key].get(name, "–") for name in shown)])
    own = OURS if seeds == 1 else f"{OURS}, mean of {seeds} seeds"
    head = ["metric", *([column] if column else []), "method", own, *(f"experiment {name}" for name in shown)]
    sources = "; ".join(dict.fromkeys(n.source for n in numbers if n.table == table))
    return Table(table, f"{caption}: ours, {settings}, and the study's. Sources: {sources}.", head, rows, limits)


def _profile(runs: Sequence[Run], settings: str) -> Table | None:
    """Build and search times of the indexes."""
    rows = joined(runs, "profile")
    if rows.empty:
        return None
    times = rows.groupby(["index", "quantity"])["value"].mean()
    lines = []
    for name, (build, query) in historic.PROFILE.items():
        for quantity, theirs, factor in (("build_s", build, 1000), ("batched_ms", query, 1)):
            key = _INDEXES[name], quantity
            own = fixed(times[key] * factor, 4) if key in times.index else "–"
            what = "build, ms" if quantity == "build_s" else "a query in a batch, ms"
            lines.append([name, what, own, f"{theirs:g}"])
    caption = (
        f"Indexes: ours, {settings}, on the dataset's own embeddings; the study's on 50,000 × 256 Gaussian numbers"
    )
    head = ["index", "quantity", OURS, "the study"]
    return Table("profile", f"{caption}. Source: {historic.PROFILE_SOURCE}.", head, lines)


def _theory(runs: Sequence[Run], scores: Scores, settings: str) -> Table:
    """The study's other numbers, and ours where they are known."""
    bank = runs[0].json["prepare"].get("bank")
    own = {"bank rows n": bank, "√n": bank and round(bank**0.5)}
    theory = joined(runs, "theory")
    if not theory.empty:
        norms = theory[(theory["quantity"] == "norm") & (theory["item"] == "mean")]
        own["mean norm of the embeddings"] = None if norms.empty else norms["value"].mean()
    own |= {f"NLL at k {k}": scores.get((k, "uniform", "nll")) for k in (1, 50)}
    rows = [
        [name, "–" if own.get(name) is None else f"{own[name]:.4g}", f"{value:.5g}", source]
        for name, (value, source) in historic.THEORY.items()
    ]
    head = ["quantity", OURS, "the study", "source"]
    return Table("theory", f"Theory, and NLL over k; ours {settings}, NLL of uniform kNN.", head, rows)


def _curve(table: str, numbers: Sequence[Number], scores: Scores, metric: str, first: str) -> bytes:
    """One metric over k, noise or imbalance: the study's experiments in grey, ours in the methods' colours.

    Args:
        first: the experiment that is drawn darker, if any.
    """
    figure = new_figure(3.4, 3.1)
    axes = figure.subplots()
    tail = table == "imbalance"
    theirs = [n for n in numbers if n.table == table and n.metric == metric]
    ends = []
    for experiment in dict.fromkeys(n.experiment for n in theirs):
        values = [n for n in theirs if n.experiment == experiment]
        colour = INK if experiment == first else _PAST
        for method in historic.METHODS:
            points = sorted((n.x, n.values[0]) for n in values if n.method == method)
            axes.plot(*zip(*points, strict=True), color=colour, lw=0.8, alpha=0.8, zorder=2)
        last = max(values, key=lambda n: -n.x if tail else n.x)
        ends.append((last.values[0], f"exp. {experiment}", colour, last.x))
    axes.plot([], [], color=_PAST, lw=0.8, label="the study, all three")
    ticks = sorted({n.x for n in theirs})
    for method, marker in zip(historic.METHODS, "os^", strict=True):
        # Limited to the study's own range.
        points = sorted(
            (x, value)
            for (x, name, measure), value in scores.items()
            if name == method and measure == metric and ticks[0] <= x <= ticks[-1]
        )
        if points:
            style = {"marker": marker, "ms": 4, "lw": 2 if method == "attention" else 1.2, "label": method_name(method)}
            axes.plot(*zip(*points, strict=True), color=method_colour(method), zorder=4, **style)
    if table != "noise":
        axes.set_xscale("log")
    if tail:
        axes.invert_xaxis()
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.minorticks_off()
    style_axes(axes)
    low, high = axes.get_ylim()
    step, floor = 0.08 * (high - low), float("-inf")
    for value, name, colour, x in sorted(ends):
        floor = max(value, floor + step)
        axes.annotate(name, (x, floor), (4, 0), textcoords="offset points", color=colour, size=7.5, va="center")
    axes.margins(x=0.2)
    axes.set_xlabel(_CAPTIONS[table][2])
    title(axes, METRICS[metric])
    legend_below(figure)
    return as_png(figure)


def _pictures(numbers: Sequence[Number], scores: dict[str, Scores], first: str) -> list[tuple[str, bytes]]:
    """The study's curves with ours, where both are known."""
    drawn = []
    for table in ("k_sweep", "noise", "imbalance"):
        for metric in dict.fromkeys(n.metric for n in numbers if n.table == table):
            known = {x for x, method, name in scores[table] if name == metric and method in historic.METHODS}
            if len(known) > 1:
                alt = f"{METRICS[metric]} of the study's experiments and of ours: {_CAPTIONS[table][1].lower()}"
                drawn.append((alt, _curve(table, numbers, scores[table], metric, first)))
    return drawn


def _verdicts(tested: Sequence[Conclusion]) -> Table:
    head = ["the study", "verdict", "numbers", "source"]
    rows = [[c.words, c.verdict, c.numbers, c.source] for c in tested]
    note = "Intervals in brackets; p not adjusted. Underpowered: too few errors or resamples, or too wide an interval."
    return Table("conclusions", "Conclusions of the study, tested on our runs", head, rows, note, folded=False)


def section(runs: Sequence[Run], level: Level, preset: str = "none") -> Section:
    """The study's numbers beside ours, and its conclusions.

    Args:
        level: of each conclusion by itself.
        preset: of the runs; its experiment comes first.
    """
    order = _order(preset)
    first = order[0] if preset in EXPERIMENTS[order[0]] else ""
    settings = "with the project's own settings" if preset == "none" else f"with the preset {preset}"

    def part(group: Sequence[Run]) -> Part:
        dataset = group[0].dataset
        numbers, limits = _data(dataset)
        scores = {table: ours(group, table) for table in _CAPTIONS}
        tables = [_compared(table, numbers, scores[table], order, len(group), settings, limits) for table in _CAPTIONS]
        if numbers is CIFAR10:
            tables += [_profile(group, settings), _theory(group, scores["k_sweep"], settings)]
        shown = [_verdicts(conclusions(group, level)), *(table for table in tables if table is not None)]
        return Part(dataset, _pictures(numbers, scores, first), shown)

    return Section(
        name="historic",
        title="The historic study",
        question="Six historic experiments on CIFAR-10, one run each, asked the same questions. Which of their "
        "conclusions do our runs support?",
        parts=by_dataset(runs, part),
        note="After a slash stands the number of the study's write-up where it differs from its notebook. The study "
        "did not tune its baselines, gave no probability to classes without a neighbour, chose its epoch on test "
        "rows and had no intervals; its numbers are shown unchanged. Grey curves are its three methods in each "
        "experiment.",
        command="dvc exp run -S preset=experiment5",
    )

"""The historic study in the report: its tables and curves beside ours, and its conclusions against our numbers."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import get_args

import pandas as pd

from attnknn.report import historic
from attnknn.report.conclusions import Conclusion, conclusions
from attnknn.report.gains import Finding, Level
from attnknn.report.historic import CIFAR10, EXPERIMENTS, IRIS, Number
from attnknn.report.plots import INK, METRICS, as_png, method_colour, method_name, new_figure, style_axes
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, fixed

# It reads what the other experiments wrote.
TABLES: dict[str, tuple[str, ...]] = {}
OURS = "here"
Scores = dict[tuple[float, str, str], float]  # (at, method, metric) → value
Picture = tuple[str, bytes]
_NAMES = {"attention_tta": "Attention + TTA", "attention_ensemble": "Attention + k-ensemble"}
_CAPTIONS = {
    "main": ("", "The main comparison"),
    "k_sweep": ("k", "Against the number of neighbours"),
    "noise": ("wrong labels", "Wrong labels in the memory (symmetric)"),
    "imbalance": ("rarest / largest", "A long tail in the memory"),
}
_CONDITION = {"noise": "noise ", "imbalance": "long tail "}
_AXES = {
    "k_sweep": "k",
    "noise": "share of wrong labels in the memory",
    "imbalance": "rarest class / largest class",
}
_WHOLE = {"noise": 0.0, "imbalance": 1.0}  # where the memory is as it is
_PAST = "#9c9c9c"
_INDEXES = {"flat L2": "flat_l2", "flat IP": "flat_ip", "HNSW": "hnsw"}


def _data(dataset: str) -> tuple[tuple[Number, ...], str]:
    """The historic numbers that a dataset may stand beside, and what to say of that; none for most."""
    if dataset == "iris":
        return IRIS, "the split and the encoder are others, and 30 test rows bear a few points either way"
    if dataset == "cifar10":
        return CIFAR10, "the images are the same, the encoder and the split are not"
    if dataset.startswith("cifar10_"):
        return CIFAR10, "this is a harder copy of CIFAR-10, and the encoder is another"
    return (), ""


def _order(preset: str) -> list[str]:
    """The experiments, that of the preset first."""
    return sorted(EXPERIMENTS, key=lambda name: preset not in EXPERIMENTS[name])


def _mean(rows: pd.DataFrame) -> Scores:
    """Means over runs of rows of at, method, metric, value."""
    if rows.empty:
        return {}
    return rows.groupby(["at", "method", "metric"], sort=False)["value"].mean().to_dict()  # type: ignore[return-value]


def ours(runs: Sequence[Run], table: str) -> Scores:
    """Our numbers for one historic table, as far as the runs hold them; means over seeds and repeats.

    Args:
        table: main, k_sweep, noise or imbalance.
    """
    bare = joined(runs, "intervals")
    found: Scores = {}
    if table == "k_sweep":
        rows = joined(runs, table)
        return _mean(rows if rows.empty else rows.assign(at=rows["k"].astype(float)))
    if not bare.empty and table in ("main", "imbalance", "noise"):
        found = _mean(bare.assign(at=_WHOLE.get(table, 0.0)))
    if table in _CONDITION:
        rows = joined(runs, table)
        if rows.empty:
            return {}
        mine = rows[rows["condition"].str.startswith(_CONDITION[table])]
        return found | _mean(mine.assign(at=mine["condition"].str.removeprefix(_CONDITION[table]).astype(float)))
    views, ensemble = joined(runs, "tta"), joined(runs, "ensemble")
    if not views.empty:
        of = views[(views["views"] == views["views"].max()) & (views["method"] == "attention")]
        found |= _mean(of.assign(at=0.0, method="attention_tta"))
    if not ensemble.empty:
        of = ensemble[(ensemble["variant"] == "k_ensemble") & (ensemble["method"] == "attention")]
        found |= _mean(of.assign(at=0.0, method="attention_ensemble"))
    return found


def _given(values: Sequence[float]) -> str:
    """A historic number; what another document gives instead stands after a stroke."""
    return " / ".join(fixed(value, 4) for value in values)


def _name(method: str) -> str:
    return _NAMES.get(method) or method_name(method)


def _compared(
    table: str, numbers: Sequence[Number], here: Scores, order: Sequence[str], seeds: int, settings: str
) -> Table | None:
    """One historic table, a column an experiment, and ours before them; None where there is nothing of ours.

    Args:
        settings: what ours was made with, in words.
    """
    theirs = {(n.at, n.method, n.metric): {} for n in numbers if n.table == table}
    for n in numbers:
        if n.table == table:
            theirs[n.at, n.method, n.metric][n.experiment] = n.values
    if not any(key in here for key in theirs):
        return None
    shown = [name for name in order if any(name in of for of in theirs.values())]
    at, caption = _CAPTIONS[table]
    ranked = sorted(theirs, key=lambda key: list(METRICS).index(key[2]))
    rows = []
    for key in ranked:
        own = fixed(here[key], 4) if key in here else "–"
        cells = [_given(theirs[key][name]) if name in theirs[key] else "–" for name in shown]
        method = Cell(_name(key[1]), method=key[1].removesuffix("_tta").removesuffix("_ensemble"))
        rows.append([METRICS[key[2]], *([f"{key[0]:g}"] if at else []), method, own, *cells])
    ours_head = OURS if seeds == 1 else f"{OURS}, mean of {seeds} seeds"
    head = ["metric", *([at] if at else []), "method", ours_head, *(f"experiment {name}" for name in shown)]
    sources = "; ".join(dict.fromkeys(n.source for n in numbers if n.table == table))
    return Table(table, f"{caption}: ours, {settings}, and the study's. Sources: {sources}.", head, rows)


def _profile(runs: Sequence[Run], settings: str) -> Table | None:
    """Build and search times of the indexes."""
    rows = joined(runs, "profile")
    if rows.empty:
        return None
    of = rows.groupby(["index", "quantity"])["value"].mean()
    table = []
    for name, (build, query) in historic.PROFILE.items():
        mine = _INDEXES[name]
        for quantity, theirs, factor in (("build_s", build, 1000), ("batched_ms", query, 1)):
            own = fixed(of[mine, quantity] * factor, 4) if (mine, quantity) in of.index else "–"
            what = "build, ms" if quantity == "build_s" else "a query in a batch, ms"
            table.append([name, what, own, f"{theirs:g}"])
    caption = (
        f"Indexes: ours, {settings}, on the dataset's own embeddings; the study's on 50,000 × 256 Gaussian numbers"
    )
    head = ["index", "quantity", OURS, "the study"]
    return Table("profile", f"{caption}. Source: {historic.PROFILE_SOURCE}.", head, table)


def _theory(runs: Sequence[Run], here: Scores, settings: str) -> Table:
    """What the study gives beside its tables, and ours where it is known."""
    bank = runs[0].json["prepare"].get("bank")
    own = {"bank rows n": bank, "√n": bank and round(bank**0.5)}
    lengths = joined(runs, "theory")
    if not lengths.empty:
        of = lengths[(lengths["quantity"] == "norm") & (lengths["item"] == "mean")]
        own["mean norm of the embeddings"] = None if of.empty else of["value"].mean()
    own |= {f"NLL at k {k}": here.get((k, "uniform", "nll")) for k in (1, 50)}
    rows = [
        [name, "–" if own.get(name) is None else f"{own[name]:.4g}", f"{value:.5g}", source]
        for name, (value, source) in historic.THEORY.items()
    ]
    head = ["quantity", OURS, "the study", "source"]
    caption = f"What it gives of its theory, and NLL against k; ours {settings}, NLL of uniform kNN."
    return Table("theory", caption, head, rows)


def _curve(table: str, numbers: Sequence[Number], here: Scores, metric: str, first: str) -> bytes:
    """One metric against k, noise or imbalance: the study's experiments in grey, ours in the methods' colours.

    Args:
        first: the experiment that is drawn darker, if any.
    """
    figure = new_figure(3.4, 3.1)
    axes = figure.subplots()
    tail, sweep = table == "imbalance", table == "k_sweep"
    theirs = [n for n in numbers if n.table == table and n.metric == metric]
    lines = {n.experiment: [m for m in theirs if m.experiment == n.experiment] for n in theirs}
    ends = []
    for experiment, of in lines.items():
        colour = INK if experiment == first else _PAST
        for method in historic.METHODS:
            points = sorted((n.at, n.values[0]) for n in of if n.method == method)
            axes.plot(*zip(*points, strict=True), color=colour, lw=0.8, alpha=0.8, zorder=2)
        last = max(of, key=lambda n: -n.at if tail else n.at)
        ends.append((last.values[0], f"exp. {experiment}", colour, last.at))
    axes.plot([], [], color=_PAST, lw=0.8, label="the study, all three")
    ats = sorted({n.at for n in theirs})
    for method, marker in zip(historic.METHODS, "os^", strict=True):
        # Beyond the study's own range there is nothing to compare.
        points = sorted(
            (at, value)
            for (at, name, of), value in here.items()
            if name == method and of == metric and ats[0] <= at <= ats[-1]
        )
        if points:
            colour, bold = method_colour(method), method == "attention"
            style = {"marker": marker, "ms": 4.5 if bold else 3.5, "lw": 2 if bold else 1.2}
            axes.plot(*zip(*points, strict=True), color=colour, zorder=4, label=_name(method), **style)
    if tail or sweep:
        axes.set_xscale("log")
    if tail:
        axes.invert_xaxis()
    axes.set_xticks(ats, [f"{at:g}" for at in ats])
    axes.minorticks_off()
    style_axes(axes)
    low, high = axes.get_ylim()
    step, floor = 0.08 * (high - low), float("-inf")
    for value, name, colour, at in sorted(ends):
        floor = max(value, floor + step)
        axes.annotate(name, (at, floor), (4, 0), textcoords="offset points", color=colour, size=7.5, va="center")
    axes.margins(x=0.2)
    axes.set_xlabel(_AXES[table])
    title = {"k_sweep": "over k", "noise": "wrong labels", "imbalance": "long tail"}[table]
    axes.set_title(f"{METRICS[metric]}, {title}", loc="left", size=10, weight="bold", color=INK)
    figure.legend(loc="outside lower left", ncols=2, fontsize=7.5, frameon=False, handlelength=1.6, columnspacing=1)
    return as_png(figure)


def _pictures(numbers: Sequence[Number], here: dict[str, Scores], first: str) -> list[Picture]:
    """The study's curves with ours, where both are known."""
    found = []
    for table in ("k_sweep", "noise", "imbalance"):
        for metric in dict.fromkeys(n.metric for n in numbers if n.table == table):
            both = {at for at, method, of in here[table] if of == metric and method in historic.METHODS}
            if len(both) > 1:
                alt = f"{METRICS[metric]} of the study's experiments and of ours: {_CAPTIONS[table][1].lower()}"
                found.append((alt, _curve(table, numbers, here[table], metric, first)))
    return found


def _verdicts(found: Sequence[Conclusion]) -> Table:
    head = ["the study", "our numbers say", "which", "where"]
    rows = [[c.words, c.verdict, c.numbers, c.source] for c in found]
    caption = "What the study concluded, and what our numbers say of it. Brackets hold intervals; p is not adjusted. "
    caption += "Out of reach is what so few wrong rows, so few resamples or so wide an interval could not have shown."
    return Table("conclusions", caption, head, rows, folded=False)


def _tally(found: Sequence[Conclusion], dataset: str) -> str:
    """How many conclusions hold, and which do not."""
    if not found:
        return f"None of the study's conclusions can be tested on {dataset}."
    kinds = {kind: [c for c in found if c.verdict == kind] for kind in get_args(Finding)}
    counts = ", ".join(f"{len(of)} {kind}" for kind, of in kinds.items())
    text = f"Of {len(found)} conclusions of the study that our numbers can test: {counts}."
    for kind in ("contradicted", "supported"):
        names = ", ".join(c.name for c in kinds[kind])
        text += f" {kind.capitalize()}: {names}." if names else ""
    return text


def _attention(runs: Sequence[Run], numbers: Sequence[Number], order: Sequence[str], beside: str) -> str:
    """Attention's own scores, and those of the study; no verdict, since the data are not the same."""
    rows, parts = joined(runs, "intervals"), []
    for metric in () if rows.empty else ("accuracy", "nll", "ece"):
        values = rows[(rows["method"] == "attention") & (rows["metric"] == metric)]["value"].tolist()
        theirs = [n for n in numbers if (n.table, n.method, n.metric) == ("main", "attention", metric)]
        theirs.sort(key=lambda n: order.index(n.experiment))
        if values and theirs:
            sd = f" ± {fixed(stdev(values), 4)} over {len(values)} seeds" if len(values) > 1 else ""
            given = ", ".join(f"{_given(n.values)} ({n.experiment})" for n in theirs)
            parts.append(f"{METRICS[metric]} {fixed(mean(values), 4)}{sd}, in the study {given}")
    return f" Attention here: {'; '.join(parts)}. No verdict comes of it: {beside}." if parts else ""


def section(runs: Sequence[Run], level: Level, preset: str = "none") -> Section:
    """The study's numbers beside ours, and its conclusions.

    Args:
        level: at which each conclusion is tested by itself.
        preset: that the runs were made under; its experiment comes first.
    """
    order = _order(preset)
    first = order[0] if preset in EXPERIMENTS[order[0]] else ""
    under = f"Run under the preset {preset}, as experiment {first}. " if first else ""
    settings = "under the project's own settings" if preset == "none" else f"under the preset {preset}"

    def part(mine: Sequence[Run]) -> Part:
        dataset = mine[0].dataset
        numbers, beside = _data(dataset)
        here = {table: ours(mine, table) for table in _CAPTIONS}
        found = conclusions(mine, level)
        compared = [_compared(table, numbers, here[table], order, len(mine), settings) for table in _CAPTIONS]
        if numbers is CIFAR10:
            compared += [_profile(mine, settings), _theory(mine, here["k_sweep"], settings)]
        text = under + _tally(found, dataset) + _attention(mine, numbers, order, beside)
        tables = [_verdicts(found), *(table for table in compared if table is not None)]
        return Part(dataset, text, _pictures(numbers, here, first), tables)

    return Section(
        name="historic",
        title="What the study found before, and what is found now",
        question="Six historic experiments on CIFAR-10, one run each, asked what this project asks. Which of their "
        "conclusions do the numbers at hand support?",
        parts=by_dataset(runs, part),
        note="A number after a stroke is what the study's write-up gives where its notebook gives the one before. The "
        "study tuned no baseline, gave no vote to classes without a neighbour, chose its epoch on test rows and had "
        "no intervals; its numbers are shown as they stand. Grey curves are its three methods in each experiment.",
        command="dvc exp run -S preset=experiment5",
    )

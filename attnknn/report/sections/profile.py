"""Indexes in the report: which search is fastest, whether an approximate one pays, and what attention adds to it."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report.claims import holm
from attnknn.report.differences import over_runs
from attnknn.report.plots import INK, as_png, method_colour, method_name, new_figure, style_axes
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, fixed, method_cell, p_value

Measured = dict[tuple[str, str], dict[str, Any]]  # by what was measured and the quantity, or index and method
_NUMBER = ("quantity", "value", "low", "high")
TABLES: dict[str, tuple[str, ...]] = {
    "profile": ("index", *_NUMBER),
    "profile_heads": ("head", *_NUMBER),
    "profile_paired": ("index", "method", "metric", "value", "difference", "low", "high", "errors", "p", "test"),
    "profile_about": ("quantity", "value"),
}
INDEXES = {"flat_l2": "Flat L2", "flat_ip": "Flat IP", "hnsw": "HNSW", "ivf": "IVF"}
APPROXIMATE = ("hnsw", "ivf")
ALPHA = 0.01
ENOUGH = 0.99  # recall below which an approximate index is no substitute
WORTH = 1.5  # times as fast, below which an approximate index is not worth having
BUSY = 1.5  # load a core, before the stage began, from which on its times say little
USES = {  # by what each is judged: the time, and how many times as fast in the same round
    "In a batch": ("index_ms", "batched_speedup"),
    "For a query alone": ("single_p50_ms", "single_speedup"),
}
_COLOURS = {True: "#882255", False: INK}  # approximate, exact: no method has these
_TIMES = {"batched_ms": "ms, batched", "index_ms": "of it the index", "single_p50_ms": "ms, single p50"}
_TIMES |= {"single_p99_ms": "p99"}
_SPEEDUPS = {"batched_speedup": "times as fast, batched", "single_speedup": "single"}


def short(value: float) -> str:
    """A number at three significant digits, never with an exponent."""
    digits = 2 - math.floor(math.log10(abs(value))) if value else 2
    return fixed(value, min(max(digits, 0), 6))


def _by_key(table: pd.DataFrame, first: str, second: str) -> Measured:
    """A table's rows by two of its columns."""
    return {(row[first], row[second]): {str(k): v for k, v in row.items()} for row in table.to_dict("records")}


def _over_runs(rows: pd.DataFrame, of: str) -> Measured:
    """Mean, sd over seeds, least and most, by what was measured and quantity."""
    found = rows.groupby([of, "quantity"], sort=False)
    table = found.agg(value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max"))
    return _by_key(table.reset_index(), of, "quantity")


def _judged(paired: pd.DataFrame) -> Measured:
    """Differences in accuracy by index and method, over seeds; `lost` where a loss is shown (p by Holm's method)."""
    accuracy = paired[paired["metric"] == "accuracy"]
    rows = over_runs(accuracy, ("index", "method"))
    values = accuracy.groupby(["index", "method"], sort=False)["value"].mean()
    lost = [p < ALPHA and max(moves) < 0 for p, moves in zip(holm(rows["p"].tolist()), rows["moves"], strict=True)]
    rows = rows.assign(value=values.to_numpy(), p=holm(rows["p"].tolist()), lost=lost)
    return _by_key(rows, "index", "method")


def fastest(times: Measured, quantity: str) -> str:
    """The exact index that takes least."""
    exact = [i for i in INDEXES if times[i, "exact"]["low"] == 1]
    return min(exact, key=lambda i: times[i, quantity]["value"])


def _took(times: Measured, use: str, seeds: int) -> str:
    """What the fastest exact index takes in one use, in words."""
    best = fastest(times, USES[use][0])
    row = times[best, USES[use][0]]
    sd = f", ± {short(row['sd'])} over {seeds} seeds" if seeds > 1 else ""
    return f"{short(row['value'])} ms ({INDEXES[best]}; {short(row['low'])} … {short(row['high'])}{sd})"


def _pays(times: Measured, judged: Measured, use: str) -> str:
    """Whether an approximate index pays in one use beside the fastest exact one, in words."""
    quantity, speedup = USES[use]
    best = fastest(times, quantity)
    why: list[str] = []
    paying: list[tuple[float, str]] = []
    for index in APPROXIMATE:
        ms, ratio = times[index, quantity]["value"], times[index, speedup]
        recall = times[index, "recall_at_10"]["value"]
        spread = f"{short(ratio['low'])} … {short(ratio['high'])}"
        found = f"{INDEXES[index]} is {short(ratio['value'])} times as fast ({spread}) at recall {fixed(recall, 4)}"
        lost = [method_name(method) for (of, method), row in judged.items() if of == index and row["lost"]]
        if recall < ENOUGH:
            why.append(f"{found}, which finds too few")
        elif lost:
            why.append(f"{found}, and loses accuracy ({', '.join(lost)})")
        elif ratio["low"] <= 1:
            why.append(f"{found}, no faster as far as the rounds show")
        elif ratio["value"] < WORTH:
            why.append(f"{found}, less than {WORTH:g}")
        else:
            build, base = (times[i, "build_s"]["value"] for i in (index, best))
            saved = times[best, quantity]["value"] - ms
            back = f", which {math.ceil(1e3 * (build - base) / saved):,} queries pay back" if build > base else ""
            paying.append((ms, f"{found}, built in {short(build)} s{back}"))
    if not paying:
        return f"{use} no approximate index pays: {'; '.join(why)}."
    words = [text for _, text in sorted(paying)]
    pay = "an approximate index pays" if len(words) == 1 else "approximate indexes pay"
    return f"{use} {pay}: {'; '.join([*words, *why])}."


def _added(heads: Measured, search: float) -> str:
    """What attention adds to a query beside the search, in words."""
    over = heads["attention", "over_distance_ms"]
    if over["low"] <= 0 <= over["high"]:
        return "Attention takes no longer than distance-weighted votes, as far as the rounds show."
    batched = heads["distance", "batched_ms"]["value"]
    own, theirs = (heads[name, "single_p50_ms"]["value"] for name in ("attention", "distance"))
    return (
        f"Attention {'adds' if over['value'] > 0 else 'saves'} {short(abs(over['value']))} ms to a query in a batch "
        f"beside the {short(batched)} ms of distance-weighted votes, which is "
        f"{short(100 * abs(over['value']) / search)} % of the exact search; for a query alone it takes {short(own)} ms "
        f"beside {short(theirs)} ms."
    )


def speed_picture(times: Measured) -> bytes:
    """How many times as fast as exact search each index is, by use; a bar spans the rounds."""
    figure = new_figure(3.4, 2.5)
    panels = figure.subplots(len(USES), 1, sharex=True)
    for axes, (use, (_, speedup)) in zip(panels, USES.items(), strict=True):
        axes.axvline(1, color=INK, lw=0.8, zorder=1)
        axes.axvline(WORTH, color=INK, lw=0.8, ls=":", zorder=1)
        for place, index in enumerate(INDEXES):
            row, colour = times[index, speedup], _COLOURS[index in APPROXIMATE]
            axes.plot([row["low"], row["high"]], [place] * 2, color=colour, lw=2, alpha=0.5, solid_capstyle="butt")
            axes.plot(row["value"], place, "o", color=colour, ms=4.5)
        recalls = [times[index, "recall_at_10"]["value"] for index in INDEXES]
        names = [f"{name} ({fixed(recall, 4)})" for name, recall in zip(INDEXES.values(), recalls, strict=True)]
        axes.set_yticks(range(len(INDEXES)), names)
        axes.set_ylim(len(INDEXES) - 0.5, -0.5)
        axes.set_title(use, loc="left", size=8.5, color=INK)
        axes.set_xscale("log")
        style_axes(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    left, right = panels[-1].get_xlim()
    ticks = [t for d in range(-3, 4) for t in (1 * 10.0**d, 2 * 10.0**d, 5 * 10.0**d) if left <= t <= right]
    panels[-1].set_xticks(ticks, [f"{t:g}" for t in ticks])
    panels[-1].minorticks_off()
    panels[-1].set_xlabel(f"times as fast as the fastest exact search\n(recall in brackets; dotted: {WORTH:g})")
    return as_png(figure)


def lost_picture(judged: Measured) -> bytes:
    """Differences in accuracy from the same head by exact search, with intervals."""
    indexes, methods = (list(dict.fromkeys(key[i] for key in judged)) for i in (0, 1))
    figure = new_figure(3.4, 1.1 + 0.5 * len(indexes))
    axes = figure.subplots()
    axes.axvline(0, color=INK, lw=0.8, zorder=1)
    for place, index in enumerate(indexes):
        for i, method in enumerate(methods):
            row, y = judged[index, method], place + 0.2 * (i - (len(methods) - 1) / 2)
            name = method_name(method) if place == 0 else None
            axes.plot([row["low"], row["high"]], [y, y], color=method_colour(method), lw=2, solid_capstyle="butt")
            axes.plot(row["difference"], y, "o", color=method_colour(method), ms=4.5, label=name)
    axes.set_yticks(range(len(indexes)), [INDEXES[i] for i in indexes])
    axes.set_ylim(len(indexes) - 0.5, -0.5)
    width = max(0.001, 1.1 * max(abs(row[end]) for row in judged.values() for end in ("low", "high")))
    axes.set_xlim(-width, width)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("accuracy − that by exact search")
    axes.set_title("Accuracy lost", loc="left", size=10, weight="bold", color=INK)
    figure.legend(loc="outside lower left", ncols=3, fontsize=7, frameon=False, handlelength=0.8, columnspacing=0.8)
    style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return as_png(figure)


def _timed(rows: Measured, name: str, quantities: Sequence[str]) -> list[str | Cell]:
    found = [rows[name, quantity] for quantity in quantities]
    return [Cell(short(r["value"]), f"{short(r['low'])} … {short(r['high'])}") for r in found]


def _tables(times: Measured, heads: Measured, judged: Measured, about: dict[str, str]) -> list[Table]:
    lists, read = (int(times["ivf", quantity]["value"]) for quantity in ("nlist", "nprobe"))
    indexes: list[Row] = [
        [
            name,
            short(times[index, "build_s"]["value"]),
            short(times[index, "memory_mib"]["value"]),
            *_timed(times, index, [*_TIMES, *_SPEEDUPS]),
            *(fixed(times[index, quantity]["value"], 4) for quantity in ("recall_at_10", "recall_at_k")),
        ]
        for index, name in INDEXES.items()
    ]
    head = ["index", "build, s", "MiB", *_TIMES.values(), *_SPEEDUPS.values(), "recall@10 ↑", f"recall@{about['k']} ↑"]
    note = f"IVF reads {read} of {lists} lists. Ranges are the least and the most of the rounds."
    shown = [q for q in _TIMES if q != "index_ms"]
    methods = list(dict.fromkeys(name for name, _ in heads))
    of_heads: list[Row] = [[method_cell(m), *_timed(heads, m, [*shown, "over_distance_ms"])] for m in methods]
    lost: list[Row] = [
        [
            INDEXES[index],
            method_cell(method),
            fixed(row["value"], 4),
            Cell(fixed(row["difference"], 4, True), f"{fixed(row['low'], 4, True)} … {fixed(row['high'], 4, True)}"),
            p_value(row["p"]),
        ]
        for (index, method), row in judged.items()
    ]
    settings = [[key.replace("_", " "), text] for key, text in about.items()]
    return [
        Table("profile_indexes", "What each index takes for a query and what it finds", head, indexes, note),
        Table(
            "profile_heads",
            "What each head takes for a query whose neighbours are found",
            ["method", *(_TIMES[q] for q in shown), "over distance"],
            of_heads,
        ),
        Table(
            "profile_lost",
            "Accuracy by what each index finds, against exact search",
            ["index", "method", "accuracy ↑", "difference", "p"],
            lost,
            "McNemar's test, adjusted by Holm's method.",
        ),
        Table("profile_machine", "Where and how it was measured", ["what", "value"], settings),
    ]


def _measured(runs: Sequence[Run]) -> tuple[Measured, Measured, Measured]:
    """Indexes, heads, and what is lost in accuracy, over the runs."""
    times, heads = (
        _over_runs(joined(runs, name), of) for name, of in (("profile", "index"), ("profile_heads", "head"))
    )
    return times, heads, _judged(joined(runs, "profile_paired"))


def _about(run: Run) -> dict[str, str]:
    return dict(run.tables["profile_about"].astype(str).to_numpy().tolist())


def sentence(runs: Sequence[Run]) -> str:
    """The fastest exact index, whether an approximate one pays, and what attention adds, on one dataset."""
    times, heads, judged = _measured(runs)
    abouts = [_about(run) for run in runs]
    batch, alone = (_took(times, use, len(runs)) for use in USES)
    search = times[fastest(times, "batched_ms"), "batched_ms"]["value"]
    words = [
        f"Exact search among {int(abouts[0]['bank_rows']):,} bank rows takes the index {batch} for a query in "
        f"a batch; a whole query alone takes {alone}.",
        *(_pays(times, judged, use) for use in USES),
        _added(heads, search),
    ]
    if any(float(told["load"]) > BUSY * int(told["cores"]) for told in abouts):
        words.append("The machine had other work to do, so these times are rough.")
    return "\n".join(words)


def _part(runs: Sequence[Run]) -> Part:
    times, heads, judged = _measured(runs)
    shown = [
        ("how many times as fast as exact search each index is, in a batch and alone", speed_picture(times)),
        ("accuracy lost by index and method", lost_picture(judged)),
    ]
    return Part(runs[0].dataset, sentence(runs), shown, _tables(times, heads, judged, _about(runs[0])))


def section(runs: Sequence[Run]) -> Section:
    """The costs of search and heads."""
    return Section(
        "profile",
        "What a query costs",
        "The test rows of each dataset are searched for in its own bank rows by two exact and two approximate indexes, "
        "all at once and one by one; and each head is timed on the neighbours found.",
        by_dataset([r for r in runs if all(name in r.tables for name in TABLES)], _part),
        f"An approximate index pays where its recall of the 10 nearest is {ENOUGH} or more, it is {WORTH} times as "
        "fast as the fastest exact one and faster in every round, and no head is shown to lose accuracy by it. Times "
        "of the same round are divided; ranges are the least and the most of the rounds. Each round begins with "
        "another index, and the first is not counted. In a batch the index's own search is judged: after it "
        "similarities are computed again from the vectors, for every index alike, which can take as long and varies "
        "more. Alone it is the median of whole queries. Timings hold for one machine and what else it did; no score "
        "and no claim depends on them.",
        "dvc repro profile",
    )

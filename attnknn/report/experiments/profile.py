"""Indexes in the report: which search is fastest, whether an approximate one pays, and what attention adds to it."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.plots import INK, as_png, method_colour, method_name, new_figure, tidy
from attnknn.report.claims import combined_p, holm
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
_EXACT = 0.9999  # inner product finds other neighbours than L2 where vectors differ in length: then it is not exact
_COLOURS = {True: "#882255", False: INK}  # approximate, exact: no method has these
_TIMES = {"batched_ms": "ms, batched", "index_ms": "of it the index", "single_p50_ms": "ms, single p50"}
_TIMES |= {"single_p99_ms": "p99"}


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
    table = (
        accuracy.groupby(["index", "method"], sort=False)
        .agg(
            value=("value", "mean"),
            difference=("difference", "mean"),
            most=("difference", "max"),
            low=("low", "min"),
            high=("high", "max"),
            p=("p", lambda p: combined_p(p.tolist())),
        )
        .reset_index()
    )
    table = table.assign(p=holm(table["p"].tolist()))
    table = table.assign(lost=(table["p"] < ALPHA) & (table["most"] < 0))
    return _by_key(table, "index", "method")


def _searched(times: Measured, bank: int, seeds: int) -> tuple[str, str]:
    """The fastest exact index, and that in words."""
    exact = [i for i in INDEXES if i not in APPROXIMATE and times[i, "recall_at_k"]["value"] >= _EXACT]
    best = min(exact, key=lambda i: times[i, "batched_ms"]["value"])
    row = times[best, "batched_ms"]
    sd = f", ± {short(row['sd'])} over {seeds} seeds" if seeds > 1 else ""
    text = (
        f"Exact search among {bank:,} bank rows takes {short(row['value'])} ms a query in a batch with "
        f"{INDEXES[best]} ({short(row['low'])} … {short(row['high'])}{sd}) and "
        f"{short(times[best, 'single_p50_ms']['value'])} ms for a query alone."
    )
    others = [i for i in exact if i != best and times[i, "batched_ms"]["low"] <= row["high"]]
    return best, text + "".join(f" {INDEXES[i]} takes as long, as far as the rounds show." for i in others)


def _pays(times: Measured, judged: Measured, best: str) -> str:
    """Whether an approximate index pays beside the fastest exact one, in words."""
    whole = times[best, "batched_ms"]
    why: list[str] = []
    paying: list[tuple[float, str]] = []
    for index in APPROXIMATE:
        ms, recall = times[index, "batched_ms"], times[index, "recall_at_10"]["value"]
        found = f"{INDEXES[index]} finds {fixed(recall, 4)} of the 10 nearest in {short(ms['value'])} ms"
        lost = [method_name(method) for (of, method), row in judged.items() if of == index and row["lost"]]
        if recall < ENOUGH:
            why.append(f"{found}, too few")
        elif lost:
            why.append(f"{found}, and loses accuracy ({', '.join(lost)})")
        elif ms["high"] >= whole["low"]:
            why.append(f"{found}, no faster as far as the rounds show")
        elif whole["value"] < WORTH * ms["value"]:
            why.append(f"{found}, only {short(whole['value'] / ms['value'])} times as fast")
        else:
            build, base = (times[i, "build_s"]["value"] for i in (index, best))
            back = 1e3 * max(0.0, build - base) / (whole["value"] - ms["value"])
            after = f"built in {short(build)} s, which {math.ceil(back):,} queries pay back"
            paying.append((ms["value"], f"{found}, {short(whole['value'] / ms['value'])} times as fast, {after}"))
    if not paying:
        return f"No approximate index pays at this size: {'; '.join(why)}."
    words = [text for _, text in sorted(paying)]
    pay = "An approximate index pays" if len(words) == 1 else "Approximate indexes pay"
    return f"{pay}: {'; '.join(words)}; no loss of accuracy is shown." + "".join(f" {text}." for text in why)


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


def recall_picture(times: Measured) -> bytes:
    """Recall of the 10 nearest against time, a point an index; a bar spans the rounds."""
    figure = new_figure(3.4, 2.5)
    axes = figure.subplots()
    order = sorted(INDEXES, key=lambda i: times[i, "batched_ms"]["value"])
    recalls = {i: times[i, "recall_at_10"]["value"] for i in order}
    marks = dict(zip(INDEXES, "os^D", strict=True))
    for place, index in enumerate(order):
        row, colour = times[index, "batched_ms"], _COLOURS[index in APPROXIMATE]
        axes.plot([row["low"], row["high"]], [recalls[index]] * 2, color=colour, lw=1.4, alpha=0.5)
        axes.plot(row["value"], recalls[index], marks[index], color=colour, ms=6)
        axes.annotate(
            INDEXES[index],
            (row["value"], recalls[index]),
            (0, (9, -9, 27, -27)[place]),  # above and below in turn, the slower two further off
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "alpha": 0.5, "shrinkB": 4}
            if place > 1
            else None,
            size=8.5,
            color=colour,
            ha="center",
            va="bottom" if place % 2 == 0 else "top",
        )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / (high / low) ** 0.1, high * (high / low) ** 0.1)
    room = max(1 - min(recalls.values()), 0.004)
    axes.set_ylim(1 - 2 * room, 1 + 0.9 * room)
    axes.set_yticks([1 - 2 * room, 1 - room, 1], [fixed(1 - 2 * room, 3), fixed(1 - room, 3), "1"])
    axes.set_xlabel("ms a query, all test rows at once")
    axes.set_title("Recall of the 10 nearest", loc="left", size=10, weight="bold", color=INK)
    ticks = [t for d in range(-6, 5) for t in (1 * 10.0**d, 2 * 10.0**d, 5 * 10.0**d)]
    left, right = axes.get_xlim()
    axes.set_xticks([t for t in ticks if left <= t <= right], [f"{t:g}" for t in ticks if left <= t <= right])
    axes.minorticks_off()
    tidy(axes)
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
    tidy(axes)
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
            *_timed(times, index, list(_TIMES)),
            *(fixed(times[index, quantity]["value"], 4) for quantity in ("recall_at_10", "recall_at_k")),
        ]
        for index, name in INDEXES.items()
    ]
    head = ["index", "build, s", "MiB", *_TIMES.values(), "recall@10 ↑", f"recall@{about['k']} ↑"]
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
    best, searched = _searched(times, int(abouts[0]["bank_rows"]), len(runs))
    words = [searched, _pays(times, judged, best), _added(heads, times[best, "batched_ms"]["value"])]
    if any(float(told["load"]) > BUSY * int(told["cores"]) for told in abouts):
        words.append("The machine had other work to do, so these times are rough.")
    return " ".join(words)


def _part(runs: Sequence[Run]) -> Part:
    times, heads, judged = _measured(runs)
    shown = [
        ("recall of the 10 nearest against ms a query, by index", recall_picture(times)),
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
        f"An approximate index pays where it finds {ENOUGH:.0%} of the 10 nearest, is {WORTH} times as fast, no round "
        "of it is as slow as the fastest of exact search, and no head is shown to lose accuracy by it. In a query's "
        "time the similarities are computed again from the vectors, which every index needs alike. The first round is "
        "not counted. Timings hold for one machine and what else it did; no score and no claim depends on them.",
        "dvc repro profile",
    )

"""Costs of search and heads: indexes compared, whether an approximate one pays, and the overhead of attention."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import ALPHA, holm, over_runs
from attnknn.report.plots import INK, method_name
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, difference_cell, fixed, method_cell, p_value

Measured = dict[tuple[str, str], dict[str, Any]]  # by index or head and quantity, or by index and method
_NUMBER = ("quantity", "value", "low", "high")
TABLES: dict[str, tuple[str, ...]] = {
    "profile": ("index", *_NUMBER),
    "profile_heads": ("head", *_NUMBER),
    "profile_paired": ("index", "method", "metric", "value", "difference", "low", "high", "errors", "p", "test"),
    "profile_about": ("quantity", "value"),
}
INDEXES = {"flat_l2": "Flat L2", "flat_ip": "Flat IP", "hnsw": "HNSW", "ivf": "IVF"}
APPROXIMATE = ("hnsw", "ivf")
MIN_RECALL = 0.99  # smallest recall of an approximate index that pays
MIN_SPEEDUP = 1.5  # smallest speed-up of an approximate index that pays
USES = {  # the time and the speed-up within rounds that each is judged by
    "In a batch": ("index_ms", "batched_speedup"),
    "Single queries": ("single_p50_ms", "single_speedup"),
}
_COLOURS = {True: "#882255", False: INK}  # approximate, exact: no method has these
_TIMES = {
    "batched_ms": "ms, batched",
    "index_ms": "of it the index",
    "single_p50_ms": "ms, single p50",
    "single_p99_ms": "p99",
}
_SPEEDUPS = {"batched_speedup": "speed-up, batched", "single_speedup": "single"}


def short(value: float) -> str:
    """A number at three significant digits, never with an exponent."""
    digits = 2 - math.floor(math.log10(abs(value))) if value else 2
    return fixed(value, min(max(digits, 0), 6))


def _over_runs(rows: pd.DataFrame, key: str) -> Measured:
    means = mean_over_runs(rows, [key, "quantity"])
    return means.to_dict("index")  # type: ignore[return-value]


def _judged(paired: pd.DataFrame) -> Measured:
    """Differences in accuracy by index and method, over seeds; `lost` where a loss is significant (p by Holm)."""
    keys = ["index", "method"]
    accuracy = paired[paired["metric"] == "accuracy"]
    rows = over_runs(accuracy, keys)
    p, values = holm(rows["p"].tolist()), accuracy.groupby(keys, sort=False)["value"].mean()
    lost = [own < ALPHA and max(per_run) < 0 for own, per_run in zip(p, rows["per_run"], strict=True)]
    rows = rows.assign(value=values.to_numpy(), p=p, lost=lost)
    return {(row["index"], row["method"]): row for row in rows.to_dict("records")}  # type: ignore[misc]


def fastest(times: Measured, quantity: str) -> str:
    """The fastest exact index."""
    exact = [i for i in INDEXES if times[i, "exact"]["low"] == 1]
    return min(exact, key=lambda i: times[i, quantity]["value"])


def _timed(row: dict[str, Any]) -> Cell:
    return Cell(short(row["value"]), f"{short(row['low'])} … {short(row['high'])}")


def pays_table(times: Measured, judged: Measured) -> Table:
    """Verdict on each approximate index against the fastest exact one, by use."""
    rows: list[Row] = []
    for use, (quantity, speedup) in USES.items():
        best = fastest(times, quantity)
        rows.append([f"{use}, against {INDEXES[best]}"])
        for index in APPROXIMATE:
            ratio, recall = times[index, speedup], times[index, "recall_at_10"]["value"]
            lost = [method_name(method) for (name, method), row in judged.items() if name == index and row["lost"]]
            reasons = {
                f"recall below {MIN_RECALL}": recall < MIN_RECALL,
                f"loses accuracy: {', '.join(lost)}": lost,
                "not faster in every round": ratio["low"] <= 1,
                f"speed-up below {MIN_SPEEDUP:g}": ratio["value"] < MIN_SPEEDUP,
            }
            reason = next((text for text, holds in reasons.items() if holds), "")
            build, base = (times[i, "build_s"]["value"] for i in (index, best))
            saved = times[best, quantity]["value"] - times[index, quantity]["value"]
            queries = f"{math.ceil(1e3 * max(0, build - base) / saved):,}" if not reason else ""
            rows.append([INDEXES[index], _timed(ratio), fixed(recall, 4), "no" if reason else "yes", reason, queries])
    head = ["index", "speed-up", "recall@10 ↑", "pays", "reason", "queries until the build pays off"]
    return Table("profile_pays", "Does an approximate index pay?", head, rows, folded=False)


def speed_picture(times: Measured, use: str) -> bytes:
    """Speed-up of each index over the fastest exact search in one use; a bar spans the rounds."""
    rows = [
        {**times[index, USES[use][1]], "colour": _COLOURS[index in APPROXIMATE]}
        | {"label": f"{name} ({fixed(times[index, 'recall_at_10']['value'], 4)})"}
        for index, name in INDEXES.items()
    ]
    label = "speed-up over the fastest exact search\n(recall in brackets)"
    return plots.forest_plot(pd.DataFrame(rows), use, label, zero=1.0, key="value")


def lost_picture(judged: Measured) -> bytes:
    """Differences in accuracy from the same head with exact search, with intervals."""
    rows = plots.by_method(pd.DataFrame(list(judged.values())))
    rows = rows.assign(group=rows["index"].map(INDEXES))
    label = plots.better_side("accuracy", "accuracy − that with exact search")
    return plots.forest_plot(rows, "Accuracy lost", label)


def _tables(times: Measured, heads: Measured, judged: Measured, about: dict[str, str]) -> list[Table]:
    lists, read = (int(times["ivf", quantity]["value"]) for quantity in ("nlist", "nprobe"))
    indexes: list[Row] = [
        [
            name,
            *(short(times[index, quantity]["value"]) for quantity in ("build_s", "memory_mib")),
            *(_timed(times[index, quantity]) for quantity in (*_TIMES, *_SPEEDUPS)),
            *(fixed(times[index, quantity]["value"], 4) for quantity in ("recall_at_10", "recall_at_k")),
        ]
        for index, name in INDEXES.items()
    ]
    head = ["index", "build, s", "MiB", *_TIMES.values(), *_SPEEDUPS.values(), "recall@10 ↑", f"recall@{about['k']} ↑"]
    note = f"IVF reads {read} of {lists} lists. Ranges are the minimum and maximum over rounds."
    shown = {q: name for q, name in _TIMES.items() if q != "index_ms"} | {"over_distance_ms": "over distance"}
    of_heads: list[Row] = [
        [method_cell(m), *(_timed(heads[m, q]) for q in shown)] for m in dict.fromkeys(name for name, _ in heads)
    ]
    lost: list[Row] = [
        [INDEXES[index], method_cell(method), fixed(row["value"], 4), difference_cell(row, 4), p_value(row["p"])]
        for (index, method), row in judged.items()
    ]
    settings = [[key.replace("_", " "), text] for key, text in about.items()]
    return [
        pays_table(times, judged),
        Table("profile_indexes", "Time and recall of each index, per query", head, indexes, note),
        Table("profile_heads", "Time of each head, per query", ["method", *shown.values()], of_heads),
        Table(
            "profile_lost",
            "Accuracy with each index, against exact search",
            ["index", "method", "accuracy ↑", "difference", "p, Holm"],
            lost,
            "McNemar's test.",
        ),
        Table("profile_machine", "Machine and settings", ["", "value"], settings),
    ]


def _part(runs: Sequence[Run]) -> Part:
    times, heads = _over_runs(joined(runs, "profile"), "index"), _over_runs(joined(runs, "profile_heads"), "head")
    judged = _judged(joined(runs, "profile_paired"))
    about = dict(runs[0].tables["profile_about"].astype(str).to_numpy().tolist())
    drawn = [
        *((f"speed-up of each index over exact search: {use.lower()}", speed_picture(times, use)) for use in USES),
        ("accuracy lost by index and method", lost_picture(judged)),
    ]
    return Part(runs[0].dataset, drawn, _tables(times, heads, judged, about))


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "profile",
        "Costs of a query",
        "Two exact and two approximate indexes search the neighbours of the test rows, in a batch and one by one; and "
        "each head is timed on these neighbours.",
        by_dataset(runs, _part, *TABLES),
        f"An approximate index pays with a recall of at least {MIN_RECALL}, a speed-up of {MIN_SPEEDUP} over the "
        "fastest exact one in every round, and no significant loss of accuracy. Times are of one machine, and rough "
        "where its load is above 1.5 per core.",
        "dvc repro profile",
    )

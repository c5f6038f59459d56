"""The comparison of methods as numbers and as text: HTML cells, CSV, Markdown and LaTeX from one source."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnknn.plots import CALIBRATIONS, GROUPS, HIGHER_IS_BETTER, METHODS, METRICS, method_name
from attnknn.report.claims import CLAIMED, NAMES, Claim, combined_p

CALIBRATED = ("uniform", "distance", "attention", "prototypes", "linear")
UNDER_CONDITIONS = ("distance", "distance_vector", "attention", "prototypes", "linear_temperature")
MAIN = ("accuracy", "f1_macro", "nll", "brier", "ece")


@dataclass(frozen=True)
class Cell:
    """A score over runs (seeds and repeats): its mean, what lies around it, and whether no other's mean is better.

    With one run, `around` is the bootstrap interval; with several, ± the standard deviation over runs, or, under
    conditions, from the lowest end of their intervals to the highest.
    """

    value: str
    around: str
    best: bool


def fixed(value: float, digits: int, sign: bool = False) -> str:
    """A number at fixed digits with a real minus sign; what rounds to zero has none."""
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def p_value(p: float) -> str:
    """A p value as people read it."""
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def digits_for(rows: int) -> int:
    """Digits that the number of test rows can bear: the standard error of an accuracy is above .0035 below 5,000."""
    return 4 if rows >= 5000 else 3


def comparison(intervals: pd.DataFrame, digits: int, ends: bool = False) -> dict[str, dict[str, Cell]]:
    """Cells by method and metric of one dataset.

    Args:
        intervals: rows of seed, method, metric, value, low, high.
        ends: whether several runs show the furthest ends of their intervals. A baseline does not vary from run to run
            where only the head is another one, and the test rows that it was scored on are a sample all the same.
    """
    runs = 1 if ends else intervals["seed"].nunique()
    scores = intervals.groupby(["method", "metric"], sort=False).agg(
        value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max")
    )
    present = set(intervals["method"])
    methods = [m for m in METHODS if m in present] + sorted(present - set(METHODS))
    table: dict[str, dict[str, Cell]] = {m: {} for m in methods}
    for metric in [m for m in METRICS if m in set(intervals["metric"])]:
        of_metric = scores.xs(metric, level="metric")
        top = of_metric["value"].max() if metric in HIGHER_IS_BETTER else of_metric["value"].min()
        for method, row in of_metric.iterrows():
            around = (
                f"± {fixed(row['sd'], digits)}"
                if runs > 1
                else f"{fixed(row['low'], digits)} … {fixed(row['high'], digits)}"
            )
            table[str(method)][metric] = Cell(fixed(row["value"], digits), around, bool(row["value"] == top))
    return table


def calibrations(intervals: pd.DataFrame, paired: pd.DataFrame, digits: int) -> list[dict[str, Any]]:
    """NLL and ECE of the base methods under every calibration, and attention less distance weighting under the same.

    Args:
        intervals: rows of one dataset and condition, with the methods `<base>_<calibration>`.
        paired: rows of seed, method, baseline, metric, difference, p.

    Returns:
        For each metric: metric, rows of (method, {calibration: Cell}), and gain {calibration: Cell} with the p values
        as measured; the calibration "" is none. Empty where no method was calibrated.
    """
    present = set(intervals["method"])
    bases = [b for b in CALIBRATED if b in present]
    kinds = [k for k in CALIBRATIONS if any(f"{b}_{k}" in present for b in bases)]
    if not kinds:
        return []
    names = {(b, k): f"{b}_{k}" if k else b for b in bases for k in ("", *kinds)}
    cells = comparison(intervals[intervals["method"].isin(names.values())], digits)
    blocks = []
    for metric in ("nll", "ece"):
        of = paired[paired["metric"] == metric]
        gain = {}
        for kind in ("", *kinds):
            rows = of[(of["method"] == names["attention", kind]) & (of["baseline"] == names["distance", kind])]
            if len(rows):
                move = fixed(rows["difference"].mean(), digits, sign=True)
                gain[kind] = Cell(move, f"p {p_value(combined_p(rows['p'].tolist()))}", False)
        rows = [(b, {k: cells[names[b, k]][metric] for k in ("", *kinds) if names[b, k] in cells}) for b in bases]
        blocks.append({"metric": metric, "kinds": ["", *kinds], "rows": rows, "gain": gain})
    return blocks


def conditions(intervals: pd.DataFrame, digits: int) -> list[dict[str, Any]]:
    """What is known of each condition of one dataset: condition, runs, and the cells of the methods set side by side.

    Args:
        intervals: rows of condition, seed, repeat, method, metric, value, low, high.
    """
    mine = intervals[intervals["method"].isin(UNDER_CONDITIONS) & intervals["metric"].isin(CLAIMED)]
    return [
        {
            "condition": condition,
            "runs": len(rows[["seed", "repeat"]].drop_duplicates()),
            "table": {
                method: {metric: cells[metric] for metric in ("accuracy", "nll", "ece")}
                for method, cells in comparison(rows, digits, ends=True).items()
            },
        }
        for condition, rows in mine.groupby("condition", sort=False)
    ]


def ablated(rows: pd.DataFrame) -> pd.DataFrame:
    """The variants of the ablation over their runs, one row a variant and metric.

    Args:
        rows: seed, repeat, group, variant, metric, validation, value, reference, difference, low, high, p.

    Returns:
        group, variant, metric, runs, validation, value and difference (means), sd (of the difference), low and high
        (the runs' furthest ends), p (combined over runs, not adjusted), reference; groups in `plots.GROUPS`' order.
    """
    found = rows.groupby(["group", "variant", "metric"], sort=False).agg(
        reference=("reference", "first"),
        runs=("value", "size"),
        validation=("validation", "mean"),
        value=("value", "mean"),
        difference=("difference", "mean"),
        sd=("difference", "std"),
        low=("low", "min"),
        high=("high", "max"),
        p=("p", lambda p: combined_p(p.tolist())),
    )
    order = {group: place for place, group in enumerate(GROUPS)}
    return found.reset_index().sort_values("group", key=lambda g: g.map(order), kind="stable", ignore_index=True)


def ablation(found: pd.DataFrame, digits: int) -> list[dict[str, Any]]:
    """The rows of `ablated` for people: each group with its variants, and for each metric its value, move and p."""

    def shown(row: Any) -> dict[str, str]:
        values = {key: fixed(row[key], digits) for key in ("validation", "value")}
        if row["variant"] == row["reference"]:
            return {**values, "difference": "", "around": "", "p": ""}
        return {
            **values,
            "difference": fixed(row["difference"], digits + 1, sign=True),
            "around": f"{fixed(row['low'], digits + 1, True)} … {fixed(row['high'], digits + 1, True)}",
            "p": p_value(row["p"]),
        }

    return [
        {
            "group": group,
            "rows": [
                {
                    "variant": variant,
                    "reference": rows["reference"].iloc[0],
                    "cells": {row["metric"]: shown(row) for _, row in rows.iterrows()},
                }
                for variant, rows in of_group.groupby("variant", sort=False)
            ],
        }
        for group, of_group in found.groupby("group", sort=False)
    ]


def claims_markdown(claims: Sequence[Claim], digits: dict[str, int]) -> str:
    """A Markdown table of all claims."""
    lines = ["| dataset | claim: attention is better in | than | difference | p | verdict |", "|---" * 6 + "|"]
    for c in claims:
        n = digits[c.dataset] + 1
        around = f"{fixed(c.low, n, True)} … {fixed(c.high, n, True)}"
        where = c.dataset if c.condition == "clean" else f"{c.dataset}, {c.condition}"
        than = f"{method_name(c.baseline)} ({', '.join(c.roles)})"
        move = f"{fixed(c.difference, n, True)} ({around})"
        lines.append(f"| {where} | {NAMES[c.metric]} | {than} | {move} | {p_value(c.p)} | {c.verdict} |")
    return "\n".join(lines) + "\n"


def as_markdown(dataset: str, cells: dict[str, dict[str, Cell]], note: str, metrics: Sequence[str] = MAIN) -> str:
    """A Markdown table of one dataset under its name; best scores are bold."""
    lines = [f"### {dataset}", "", note, ""]
    lines.append("| method | " + " | ".join(METRICS[m] for m in metrics) + " |")
    lines.append("|---" * (len(metrics) + 1) + "|")
    for method, row in cells.items():
        shown = [
            f"**{c.value}** ({c.around})" if c.best else f"{c.value} ({c.around})" for c in map(row.get, metrics) if c
        ]
        lines.append(f"| {method_name(method)} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def conditions_markdown(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of `conditions`."""
    head = ["condition (runs)", "method", *(METRICS[m] for m in CLAIMED)]
    return _rows(
        head,
        [
            [f"{c['condition']} ({c['runs']})", method_name(method)]
            + [f"{cells[m].value} ({cells[m].around})" for m in CLAIMED]
            for c in found
            for method, cells in c["table"].items()
        ],
    )


def calibrations_markdown(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of `calibrations`; empty where there are none."""
    if not found:
        return ""

    def row(metric: str, name: str, cells: dict[str, Cell], around: bool) -> list[str]:
        shown = [cells.get(kind) for kind in found[0]["kinds"]]
        return [
            METRICS[metric],
            name,
            *("" if c is None else f"{c.value} ({c.around})" if around else c.value for c in shown),
        ]

    head = ["metric", "method", "as it is", *(f"+ {CALIBRATIONS[kind]}" for kind in found[0]["kinds"][1:])]
    rows = []
    for block in found:
        rows += [row(block["metric"], method_name(method), cells, False) for method, cells in block["rows"]]
        rows.append(row(block["metric"], "attention − distance", block["gain"], True))
    return _rows(head, rows)


def ablation_markdown(found: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of `ablation`."""
    head = ["group", "variant", "against", "NLL on val", "NLL", "difference", "p", "accuracy", "difference", "p", "ECE"]
    rows = []
    for g in found:
        for r in g["rows"]:
            nll, accuracy = r["cells"]["nll"], r["cells"]["accuracy"]
            scores = [text for c in (nll, accuracy) for text in (c["value"], c["difference"], c["p"])]
            against = "" if r["variant"] == r["reference"] else r["reference"]
            rows.append([g["group"], r["variant"], against, nll["validation"], *scores, r["cells"]["ece"]["value"]])
    return _rows(head, rows)


def _tex(text: str) -> str:
    for char in "&%#_{}":
        text = text.replace(char, "\\" + char)
    return text.replace("±", "$\\pm$").replace("−", "$-$").replace(" … ", ", ")


def as_tex(tables: dict[str, dict[str, dict[str, Cell]]], notes: dict[str, str], metrics: Sequence[str] = MAIN) -> str:
    """A booktabs table of all datasets; best scores are bold. Needs \\usepackage{booktabs}."""
    columns = len(metrics) + 1
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'l' * len(metrics)}}}",
        "\\toprule",
        " & ".join(["Method", *(METRICS[m] for m in metrics)]) + " \\\\",
    ]
    for dataset, cells in tables.items():
        title = f"\\texttt{{{_tex(dataset)}}}: {_tex(notes[dataset])}"
        lines += ["\\midrule", f"\\multicolumn{{{columns}}}{{l}}{{{title}}} \\\\"]
        for method, row in cells.items():
            shown = []
            for cell in (row[m] for m in metrics):
                value = f"\\textbf{{{_tex(cell.value)}}}" if cell.best else _tex(cell.value)
                around = _tex(cell.around) if cell.around.startswith("±") else f"[{_tex(cell.around)}]"
                shown.append(f"{value} {{\\scriptsize {around}}}")
            lines.append(" & ".join([_tex(method_name(method)), *shown]) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"

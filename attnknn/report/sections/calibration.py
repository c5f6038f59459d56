"""Reliability of every method, and its NLL and ECE under every calibration."""

from collections.abc import Sequence

from attnknn.report import plots
from attnknn.report.claims import combined_p
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, comparison, digits_of, fixed, method_cell, p_value

CALIBRATED = ("uniform", "distance", "attention", "prototypes", "linear", "cnn")


def reliability(runs: Sequence[Run]) -> list[tuple[str, bytes]]:
    """A reliability diagram of each method."""
    bins = joined(runs, "reliability")
    present = [m for m in plots.METHODS if (bins["method"] == m).any()]
    return [
        (f"reliability of {plots.method_name(m)}", plots.reliability(bins[bins["method"] == m], m)) for m in present
    ]


def calibrations(runs: Sequence[Run]) -> list[Table]:
    """NLL and ECE of the base methods under every calibration, and attention minus distance weighting under the same.

    Empty where no method was calibrated.
    """
    intervals, paired, digits = joined(runs, "intervals"), joined(runs, "paired"), digits_of(runs)
    present = set(intervals["method"])
    bases = [b for b in CALIBRATED if b in present]
    kinds = [k for k in plots.CALIBRATIONS if any(f"{b}_{k}" in present for b in bases)]
    if not kinds:
        return []
    names = {(b, k): f"{b}_{k}" if k else b for b in bases for k in ("", *kinds)}
    cells = comparison(intervals[intervals["method"].isin(names.values())], digits)
    tables = []
    for metric in ("nll", "ece"):
        rows: list[Row] = [
            [method_cell(b), *(cells[names[b, k]][metric] if names[b, k] in cells else "" for k in ("", *kinds))]
            for b in bases
        ]
        gain: list[str | Cell] = ["attention − distance"]
        for kind in ("", *kinds):
            pair = (paired["method"] == names["attention", kind]) & (paired["baseline"] == names["distance", kind])
            tests = paired[pair & (paired["metric"] == metric)]
            p = p_value(combined_p(tests["p"].tolist())) if len(tests) else ""
            gain.append(Cell(fixed(tests["difference"].mean(), digits, sign=True), f"p {p}") if len(tests) else "")
        head = ["method", "uncalibrated", *(f"+ {plots.CALIBRATIONS[k]}" for k in kinds)]
        note = "The last line compares both methods under the same calibration; p not adjusted."
        caption = f"{plots.METRICS[metric]} under each calibration, lower is better"
        tables.append(Table(f"calibrated_{metric}", caption, head, [*rows, gain], note))
    return tables


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "calibration",
        "Calibration",
        "Of all answers with a confidence of 80 %, 80 % should be right. Each calibration is fitted on fit rows for "
        "every method alike, and kept only where it lowers the NLL on validation rows.",
        by_dataset(runs, lambda group: Part(group[0].dataset, reliability(group), calibrations(group))),
        "Below the diagonal the method is overconfident. With few rows even a perfect model has an ECE above 0.",
        "dvc repro evaluate",
    )

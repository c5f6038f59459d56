"""Reliability of every method, and its NLL and ECE under every calibration."""

from collections.abc import Sequence

from attnknn.report import plots
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, digits_of, fixed, method_cell

CALIBRATED = ("uniform", "distance", "attention", "prototypes", "linear", "cnn")


def reliability(runs: Sequence[Run]) -> list[tuple[str, bytes]]:
    """A reliability diagram of each method."""
    bins = joined(runs, "reliability")
    present = [m for m in plots.METHODS if (bins["method"] == m).any()]
    return [
        (f"reliability of {plots.method_name(m)}", plots.reliability(bins[bins["method"] == m], m)) for m in present
    ]


def calibrations(runs: Sequence[Run]) -> list[Table]:
    """NLL and ECE of the base methods under every calibration; empty where no method was calibrated."""
    digits, scores = digits_of(runs), [run.json["evaluate"] | run.json["calibration"] for run in runs]
    bases = [b for b in CALIBRATED if b in scores[0]]
    kinds = [k for k in plots.CALIBRATIONS if any(f"{b}_{k}" in scores[0] for b in bases)]
    tables = []
    for metric in ("nll", "ece") if kinds else ():
        rows: list[Row] = []
        for base in bases:
            values = {
                k: [s[name][metric] for s in scores if (name := f"{base}_{k}" if k else base) in s]
                for k in ("", *kinds)
            }
            means = {k: sum(v) / len(v) for k, v in values.items() if v}
            best = min(means.values())
            rows.append(
                [
                    method_cell(base),
                    *(Cell(fixed(means[k], digits), best=means[k] == best) if k in means else "" for k in values),
                ]
            )
        head = ["method", "uncalibrated", *(f"+ {plots.CALIBRATIONS[k]}" for k in kinds)]
        caption = f"{plots.METRICS[metric]} under each calibration, lower is better"
        tables.append(
            Table(f"calibrated_{metric}", caption, head, rows, "Best of each method in bold; means over seeds.")
        )
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

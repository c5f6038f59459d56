"""Are the probabilities true? Reliability of every method, and what each calibration adds to it."""

from collections.abc import Sequence

from attnknn.report import plots as pictures
from attnknn.report.claims import combined_p
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, comparison, digits_of, fixed, method_cell, p_value

CALIBRATED = ("uniform", "distance", "attention", "prototypes", "linear", "cnn")


def reliability(runs: Sequence[Run]) -> list[tuple[str, bytes]]:
    """A reliability diagram of each base method that has one."""
    bins = joined(runs, "reliability")
    present = [m for m in pictures.METHODS if (bins["method"] == m).any()]
    return [
        (f"reliability of {pictures.method_name(m)}", pictures.reliability(bins[bins["method"] == m], m))
        for m in present
    ]


def calibrations(runs: Sequence[Run]) -> list[Table]:
    """NLL and ECE of the base methods under every calibration, and attention less distance weighting under the same.

    Nothing where no method was calibrated.
    """
    intervals, paired, digits = joined(runs, "intervals"), joined(runs, "paired"), digits_of(runs)
    present = set(intervals["method"])
    bases = [b for b in CALIBRATED if b in present]
    kinds = [k for k in pictures.CALIBRATIONS if any(f"{b}_{k}" in present for b in bases)]
    if not kinds:
        return []
    names = {(b, k): f"{b}_{k}" if k else b for b in bases for k in ("", *kinds)}
    cells = comparison(intervals[intervals["method"].isin(names.values())], digits)
    found = []
    for metric in ("nll", "ece"):
        of = paired[paired["metric"] == metric]
        rows: list[Sequence[str | Cell]] = [
            [method_cell(b), *(cells[names[b, k]][metric] if names[b, k] in cells else "" for k in ("", *kinds))]
            for b in bases
        ]
        gain: list[str | Cell] = ["attention − distance"]
        for kind in ("", *kinds):
            one = of[(of["method"] == names["attention", kind]) & (of["baseline"] == names["distance", kind])]
            p = p_value(combined_p(one["p"].tolist())) if len(one) else ""
            gain.append(Cell(fixed(one["difference"].mean(), digits, sign=True), f"p {p}") if len(one) else "")
        head = ["method", "as it is", *(f"+ {pictures.CALIBRATIONS[k]}" for k in kinds)]
        note = "The last line is the head's own gain, calibration being equal on both sides; p as measured."
        caption = f"{pictures.METRICS[metric]} under each calibration, lower is better"
        found.append(Table(f"calibrated_{metric}", caption, head, [*rows, gain], note))
    return found


def _words(runs: Sequence[Run]) -> str:
    digits, table = digits_of(runs), joined(runs, "intervals")
    of = table[(table["metric"] == "ece") & table["method"].isin(list(runs[0].json["evaluate"]))]
    mean = of.groupby("method", sort=False)["value"].mean().sort_values()
    best, ours = str(mean.index[0]), float(mean["attention"])
    ends = of[of["method"] == "attention"]
    around = f"{fixed(ends['low'].min(), digits)} … {fixed(ends['high'].max(), digits)}"
    first = f"Attention's ECE is {fixed(ours, digits)} ({around})"
    other = str(mean.index[1]) if best == "attention" else best
    value = f"{pictures.method_name(other)}'s, {fixed(float(mean[other]), digits)}"
    return (
        f"{first}, the lowest of all; next is {value}." if best == "attention" else f"{first}; the lowest is {value}."
    )


def _part(runs: Sequence[Run]) -> Part:
    return Part(runs[0].dataset, _words(runs), reliability(runs), calibrations(runs))


def section(runs: Sequence[Run]) -> Section:
    """Reliability and calibration."""
    return Section(
        "calibration",
        "Are the probabilities true?",
        "Of all answers given with a confidence of 80 %, 80 % should be right. Each calibration is fitted on fit rows "
        "for every method alike, and kept only where it lowers the NLL on validation rows.",
        by_dataset(runs, _part),
        "On the diagonal the confidence is true; below it the method is too sure. Bars count the test rows in each "
        "bin: a point with few rows says little, and on few rows even a perfect model has an ECE above 0.",
        "dvc repro evaluate",
    )

"""Encoders trained on wrong labels: label cleaning by neighbours, and plain networks."""

from collections.abc import Sequence
from functools import partial

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS
from attnknn.report.differences import MARGIN, Level, gained_over_all
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.sections import trained
from attnknn.report.tables import by_dataset, digits_of, fixed

TABLES = {
    "noise_trained": ("rate", *trained.SCORES),
    "noise_trained_paired": ("rate", *trained.PAIRED),
    "cleaning": ("rate", "condition", "round", "quantity", "value"),
}
_LINES: dict[trained.Drawn, str] = {
    ("cross_entropy", "cnn", True): "Plain network, noisy labels",
    ("plain", "distance", True): "Distance-weighted kNN, noisy labels",
    ("plain", "attention", True): "Attention, noisy labels",
    ("cross_entropy_cleaned", "cnn", False): "Plain network, cleaned labels",
    ("cleaned", "distance", False): "Distance-weighted kNN, cleaned labels",
    ("cleaned", "attention", False): "Attention, cleaned labels",
    ("cleaned", "linear", False): "Linear head, cleaned labels",
}
LABELS = {
    "plain": "noisy labels",
    "cross_entropy": "noisy labels",
    "cleaned": "cleaned labels",
    "cross_entropy_cleaned": "cleaned labels",
}
_RIVALS = ("distance", "linear", "prototypes")  # of attention on the same cleaned labels
_XLABEL = "share of wrong labels"


def cleaning_picture(runs: Sequence[Run]) -> bytes:
    """Share of wrong labels in the bank before cleaning and after each round, over the rate."""
    rows = joined(runs, "cleaning").assign(x=lambda table: table["rate"])
    steps = {"noisy": rows[(rows["quantity"] == "wrong_before") & (rows["round"] == 1)]}
    after = rows[rows["quantity"] == "wrong_after"].groupby("round")
    steps |= {f"round {step:g}": group for step, group in after}  # type: ignore[str-format]
    colours = ("#7f7f7f", "#56b4e9", "#0072b2", "#009e73", "#222222")
    lines = [plots.Line(name, colours[min(i, 4)], group) for i, (name, group) in enumerate(steps.items())]
    text = "Wrong labels in the bank, cleaned"
    return plots.line_plot(lines, text, _XLABEL, ticks=sorted(rows["rate"].unique()), zero=True)


def cleaning_table(runs: Sequence[Run]) -> Table:
    """Shares of wrong, corrected and corrupted labels by round of cleaning, means over runs."""
    means = joined(runs, "cleaning").groupby(["condition", "round", "quantity"], sort=False)["value"].mean()
    names = {
        "wrong_before": "wrong before",
        "wrong_after": "wrong after",
        "mended": "wrong labels corrected",
        "spoiled": "right labels corrupted",
    }
    rows = [
        [str(condition), f"{step:g}", *(fixed(float(row[q]), 3) for q in names)]
        for (condition, step), row in means.unstack("quantity").iterrows()  # type: ignore[misc]
    ]
    note = "Shares of the bank rows. Cleaning does not use the true labels."
    return Table("cleaning", "Label cleaning", ["condition", "round", *names.values()], rows, note)


def _test(
    runs: Sequence[Run], level: Level, condition: str, fit: trained.Fit, other: trained.Fit, metric: str
) -> trained.Test:
    """Differences in accuracy uncorrected, in NLL forward-corrected."""
    suffix = "" if metric == "accuracy" else "_forward"
    fit, other = ((variant, method + suffix) for variant, method in (fit, other))
    return trained.test(runs, level, "noise_trained_paired", condition, fit, other, metric)


def pairs_table(runs: Sequence[Run], level: Level) -> Table:
    """All paired comparisons: accuracy uncorrected, NLL forward-corrected on both sides."""
    rows, digits = joined(runs, "noise_trained_paired"), digits_of(runs)
    keys = ["condition", "variant", "method", "baseline_variant", "baseline"]
    lines: list[Row] = []
    pairs = rows.loc[~rows["method"].str.endswith("_forward"), keys].drop_duplicates()
    for condition, group in pairs.groupby("condition", sort=False):
        lines.append([str(condition)])
        for variant, method, baseline_variant, baseline in group[keys[1:]].to_numpy():
            fit, other = (variant, method), (baseline_variant, baseline)
            names = [f"{plots.method_name(m)}, {LABELS[v]}" for v, m in (fit, other)]
            tests = [_test(runs, level, str(condition), fit, other, metric) for metric in ("accuracy", "nll")]
            lines.append([*names, *(cell for test in tests for cell in trained.test_cells(test, digits))])
    head = ["method", "against", "accuracy", "p", "finding", "NLL, forward-corrected", "p", "finding"]
    return Table("paired", "Paired comparisons, p not adjusted", head, lines)


def verdicts_table(runs: Sequence[Run], level: Level) -> Table:
    """Whether attention adds to label cleaning: better than each of `_RIVALS` on the same cleaned labels."""
    rows = []
    for condition in dict.fromkeys(joined(runs, "noise_trained")["condition"]):
        verdicts = []
        for metric in ("accuracy", "nll"):
            attention = ("cleaned", "attention")
            tests = [_test(runs, level, condition, attention, ("cleaned", m), metric) for m in _RIVALS]
            verdicts.append(gained_over_all([test["finding"] for test in tests if test is not None]))
        rows.append([str(condition), *verdicts])
    head = ["condition", "in accuracy", "in NLL, forward-corrected"]
    return Table("verdicts", "Does attention add to label cleaning?", head, rows, folded=False)


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows = joined(runs, "noise_trained")
    accuracy, nll = rows[rows["metric"] == "accuracy"], rows[rows["metric"] == "nll"]
    rates = sorted(rows["rate"].unique())
    corrected = {(variant, f"{method}_forward", dashed): name for (variant, method, dashed), name in _LINES.items()}
    drawn = [
        (
            "accuracy over the share of wrong labels",
            trained.against(accuracy, "rate", rates, _LINES, "Accuracy", _XLABEL),
        ),
        (
            "forward-corrected NLL over the share of wrong labels",
            trained.against(nll, "rate", rates, corrected, "NLL, forward-corrected", _XLABEL),
        ),
        ("share of wrong labels before and after each round of cleaning", cleaning_picture(runs)),
    ]
    scores = trained.scores_table(runs, "noise_trained", LABELS, ("accuracy", "nll", "ece"), ("", "_forward"))
    tables = [verdicts_table(runs, level), cleaning_table(runs), scores, pairs_table(runs, level)]
    return Part(runs[0].dataset, drawn, tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "noise_trained",
        "Trained on wrong labels",
        "Labels of bank, fit and val are wrong in a share of the rows before anything is trained. Neighbours then "
        "clean the bank, and encoders and plain networks are trained on the noisy and on the cleaned labels.",
        by_dataset(runs, partial(_part, level=level), "noise_trained"),
        "Forward-corrected, the temperature is fitted to the noisy val labels through the estimated label transitions. "
        f"Attention adds to cleaning where it is better than {len(_RIVALS)} rivals on the same labels (p < "
        f"{level.alpha:g}, {FEWEST_ERRORS} errors), not where a gain is below {MARGIN['accuracy']:g} in accuracy, "
        f"{MARGIN['nll']:g} in NLL.",
        "dvc exp run -S 'train_corrupted.seeds=[42]'",
    )

"""Encoders trained on rare classes, and predictions corrected for class shares."""

from collections.abc import Sequence
from functools import partial

from attnknn.report.differences import Level
from attnknn.report.plots import SHOTS
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.sections import trained
from attnknn.report.tables import by_dataset, digits_of

TABLES = {
    "imbalance_trained": ("ratio", *trained.SCORES),
    "imbalance_trained_paired": ("ratio", *trained.PAIRED),
}
_FITS = {("cross_entropy", "cnn"): "Plain network", ("plain", "distance"): "Distance-weighted kNN"}
_FITS |= {("plain", "attention"): "Attention"}
_LABELS = {"plain": "trained on the same rows", "cross_entropy": "trained on the same rows"}
_METRICS = ("balanced_accuracy", "f1_macro", *SHOTS, "accuracy", "nll", "ece")


def pairs_table(runs: Sequence[Run], level: Level) -> Table:
    """Corrected attention against the corrected plain network, by condition."""
    fit, other = ("plain", "attention_prior"), ("cross_entropy", "cnn_prior")
    rows = []
    for condition in dict.fromkeys(joined(runs, "imbalance_trained")["condition"]):
        test = trained.test(runs, level, "imbalance_trained_paired", condition, fit, other, "accuracy")
        rows.append([str(condition), *trained.test_cells(test, digits_of(runs))])
    caption = "Attention − plain network, both corrected for class shares; p not adjusted"
    return Table("paired", caption, ["condition", "accuracy", "p", "finding"], rows, folded=False)


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows, drawn = joined(runs, "imbalance_trained"), []
    lines: dict[trained.Drawn, str] = {}
    for (variant, method), name in _FITS.items():
        lines |= {(variant, method, True): name, (variant, f"{method}_prior", False): f"{name}, corrected"}
    for condition, group in rows[rows["metric"].isin(SHOTS)].groupby("condition", sort=False):
        shots = [shot for shot in SHOTS if (group["metric"] == shot).any()]
        title, xlabel = f"Accuracy, {condition}", "classes by their rows in the bank"
        png = trained.against(group, "metric", shots, lines, title, xlabel)
        drawn.append((f"accuracy of common and rare classes, {condition}", png))
    scores = trained.scores_table(runs, "imbalance_trained", _LABELS, _METRICS, ("", "_prior"))
    return Part(runs[0].dataset, drawn, [pairs_table(runs, level), scores])


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "imbalance_trained",
        "Trained on rare classes",
        "Bank, fit and val are subsampled before anything is trained. Each method is shown with and without a "
        "correction for class shares, p ∝ p·share^−η, with η chosen on val rows.",
        by_dataset(runs, partial(_part, level=level), "imbalance_trained"),
        "Many, medium and few are thirds of the classes by their rows in the bank. Findings need p below "
        f"{level.alpha:g}.",
        "dvc exp run -S 'train_corrupted.seeds=[42]'",
    )

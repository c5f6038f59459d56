"""Rare classes that the encoder was trained on too, and votes corrected for how common each class is."""

from collections.abc import Sequence
from functools import partial

from attnknn.report.gains import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section
from attnknn.report.sections import trained
from attnknn.report.tables import by_dataset

TABLES = {
    "imbalance_trained": ("ratio", *trained.SCORES),
    "imbalance_trained_paired": ("ratio", *trained.PAIRED),
}
_SHOTS = ("many", "medium", "few")
_WHO = {("cross_entropy", "cnn"): "Plain network", ("plain", "distance"): "Distance-weighted kNN"}
_WHO |= {("plain", "attention"): "Attention"}
_LABELS = {"plain": "trained on the same rows", "cross_entropy": "trained on the same rows"}
_METRICS = ("balanced_accuracy", "f1_macro", *_SHOTS, "accuracy", "nll", "ece")


def sentence(runs: Sequence[Run], level: Level) -> str:
    """At each ratio: balanced accuracy bare and corrected, and the accuracies compared."""
    words = []
    for condition in dict.fromkeys(joined(runs, "imbalance_trained")["condition"]):
        moves = []
        for (variant, method), name in _WHO.items():
            bare, corrected = (
                trained.value_of(runs, "imbalance_trained", condition, (variant, m), "balanced_accuracy")
                for m in (method, f"{method}_prior")
            )
            moves.append(f"{name} {bare} → {corrected}")
        ours, network = ("plain", "attention_prior"), ("cross_entropy", "cnn_prior")
        move = trained.paired(runs, level, "imbalance_trained_paired", condition, ours, network, "accuracy")
        said = f"{move}: {trained.word(move)}" if move else "not tested"
        words.append(
            f"{condition}: balanced accuracy as it is → corrected for the class shares: {', '.join(moves)}; corrected "
            f"attention's accuracy less the corrected plain network's is {said}"
        )
    return "At " + ". At ".join(words) + "."


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows, shown = joined(runs, "imbalance_trained"), []
    lines: dict[trained.Line, str] = {}
    for (variant, method), name in _WHO.items():
        lines |= {(variant, method, "--"): name, (variant, f"{method}_prior", "-"): f"{name}, corrected"}
    for condition, of in rows[rows["metric"].isin(_SHOTS)].groupby("condition", sort=False):
        present = [shot for shot in _SHOTS if (of["metric"] == shot).any()]
        of = of.assign(metric=of["metric"].astype(object)).sort_values("metric", key=lambda m: m.map(present.index))
        labels = {"title": f"Accuracy, {condition}", "xlabel": "classes by their rows in the bank"}
        shown.append(
            (f"accuracy of common and rare classes, {condition}", trained.against(of, "metric", lines, labels))
        )
    return Part(
        runs[0].dataset,
        sentence(runs, level),
        shown,
        [trained.scores_table(runs, "imbalance_trained", _LABELS, _METRICS, ("", "_prior"))],
    )


def section(runs: Sequence[Run], level: Level) -> Section:
    """Encoders trained on rare classes."""
    return Section(
        "imbalance_trained",
        "Trained on rare classes",
        "Bank, fit and val are cut before anything is trained: class sizes fall off exponentially to a share of the "
        "largest (long tail), or the last half of the classes has that share (step). Test rows stay as they are. "
        "Beside each answer stands the same corrected for class shares, p ∝ p·share^−η, "
        "with η chosen on val rows, 0 among its values. A plain network is trained on the same rows.",
        by_dataset([r for r in runs if "imbalance_trained" in r.tables], partial(_part, level=level)),
        "Many, medium and few are the thirds of the classes by their rows in the bank, each the mean over its classes; "
        "they have no interval. Validation rows of rare classes are rare too, so η rests on few of them. p values are "
        f"as measured, and a difference is shown where p is below {level.alpha:g}.",
        "dvc exp run -S 'imbalance.train_seeds=[42]'",
    )

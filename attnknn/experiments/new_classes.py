"""New classes in a memory, beside classifiers that are fitted again: accuracy and NLL of new and of old classes.

Encoder and head know some of the classes; n rows of each other class are then added. `fit_again` fits the classifier on
all these rows, with held-out rows of the old classes alone.
"""

import copy
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import log_softmax
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.evaluation.calibration import fit_temperature
from attnknn.evaluation.paired_tests import Table, compare_repeats
from attnknn.experiments.unseen_classes import encoder_of_known, known_classes

OURS, BALANCED, AGAIN = "partial_fit", "partial_fit, balanced", "fit_again"
SHARE = 0.2  # of the classes, new
SCORES = ("old_accuracy", "new_accuracy", "old_nll", "new_nll", "harmonic")
COLUMNS = ("condition", "repeat", "method", *SCORES, "before")
_LEAST = 1e-12


class NearestMean:
    """Class means of unit vectors; the logits are −d²."""

    def fit(
        self, X: Float[np.ndarray, "N D"], y: Int[np.ndarray, " N"], sample_weight: np.ndarray | None = None
    ) -> "NearestMean":
        self.classes_, weight = np.unique(y), np.ones(len(y)) if sample_weight is None else sample_weight
        self.means = np.stack([np.average(normalize(X)[y == c], 0, weight[y == c]) for c in self.classes_])
        return self

    def decision_function(self, X: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]:
        return -(pairwise_distances(normalize(X), self.means) ** 2)


def classifiers(n_columns: int, seed: int) -> dict[str, Any]:
    """Those that are fitted again on all rows."""
    scaled = StandardScaler()
    features = RBFSampler(gamma=1 / n_columns, n_components=2000, random_state=seed)
    return {
        "class_means": NearestMean(),
        "random_features": make_pipeline(scaled, features, RidgeClassifier(class_weight="balanced")),
        "logistic": make_pipeline(scaled, LogisticRegression(max_iter=300)),
        "balanced_logistic": make_pipeline(scaled, LogisticRegression(max_iter=300, class_weight="balanced")),
    }


def log_probs(
    classifier: Any, held: tuple[np.ndarray, np.ndarray], z: Float[np.ndarray, "B D"]
) -> Float[np.ndarray, "B C"]:
    """Log probabilities, with the temperature of lowest NLL on held-out rows."""
    logits, y = classifier.decision_function(held[0]), np.searchsorted(classifier.classes_, held[1])
    temperature = fit_temperature(logits, y)
    return log_softmax(classifier.decision_function(z) / temperature, axis=1)


def grouped_scores(log_p: np.ndarray, classes: np.ndarray, y: np.ndarray, known: np.ndarray) -> dict[str, float]:
    """Accuracy and NLL of test rows of new and of old classes, and the harmonic mean of both accuracies."""
    right = classes[log_p.argmax(1)] == y
    nll, old = -log_p[np.arange(len(y)), np.searchsorted(classes, y)], np.isin(y, known)
    row = {f"{name}_accuracy": float(right[rows].mean()) for name, rows in (("old", old), ("new", ~old))}
    row |= {f"{name}_nll": float(nll[rows].mean()) for name, rows in (("old", old), ("new", ~old))}
    both = row["old_accuracy"] + row["new_accuracy"]
    return row | {"harmonic": 2 * row["old_accuracy"] * row["new_accuracy"] / both if both else 0.0}


def _one_repeat(
    split: Split, known: np.ndarray, encoder: Encoder, bf16: bool, ns: list[int], seed: int, device: str
) -> Table:
    z, y, part = embed(encoder, np.asarray(split.x), device, bf16)[0], np.asarray(split.y), np.asarray(split.part)
    old = np.isin(y, known)
    bank, held, test = old & (part == BANK), old & np.isin(part, (FIT, VAL)), part == TEST
    train, held_out = np.flatnonzero(bank), (z[held], y[held])  # the latter for head and temperatures
    model, rng, table = AttnKNNClassifier(random_state=seed, device=device), np.random.default_rng(seed), []
    model.fit(z[train], y[train], held_out=held_out)
    balanced = copy.deepcopy(model)
    before = float((model.predict(z[test & old]) == y[test & old]).mean())
    order = {c: rng.permutation(np.flatnonzero((y == c) & (part == BANK))) for c in np.setdiff1d(y, known)}
    added = 0
    for n in sorted(ns):
        more = np.concatenate([rows[added:n] for rows in order.values()])
        if min(map(len, order.values())) < n:
            break
        model.partial_fit(z[more], y[more])
        balanced.partial_fit(z[more], y[more], sample_weight="balanced")
        added, new = n, np.concatenate([rows[:n] for rows in order.values()])
        rows = np.concatenate([train, new])
        again = AttnKNNClassifier(random_state=seed, device=device).fit(z[rows], y[rows], held_out=held_out)
        answers = {}
        for name, own in ((OURS, model), (BALANCED, balanced), (AGAIN, again)):
            answers[name] = np.log(np.maximum(own.predict_proba(z[test]), _LEAST)), own.classes_
        for name, classifier in classifiers(z.shape[1], seed).items():
            fitted = classifier.fit(z[rows], y[rows])
            answers[name] = log_probs(fitted, held_out, z[test]), np.asarray(fitted.classes_)
        nearest = KNeighborsClassifier(1).fit(z[rows], y[rows])
        answers["nearest"] = np.log(np.maximum(nearest.predict_proba(z[test]), _LEAST)), nearest.classes_
        for name, (log_p, classes) in answers.items():
            row = {"condition": f"{n} rows", "repeat": seed, "method": name}
            table.append(row | grouped_scores(log_p, classes, y[test], known) | {"before": before})
    return table


def add_new_classes(
    split: Split,
    settings: TrainEmbedder,
    stored: Encoder,
    ns: list[int],
    repeats: int,
    seed: int,
    device: str,
    label: str,
) -> Table:
    """`grouped_scores` of every method for each number of rows, with other new classes in each repeat.

    Also before: accuracy on the old classes before rows are added. No rows of two classes.
    """
    table: Table = []
    for repeat, known in enumerate(known_classes(len(split.classes), SHARE, repeats, seed)):
        if len(known) < len(split.classes):
            encoder = encoder_of_known(split, known, settings, stored, seed + repeat, device, f"{label}, {repeat}")
            table += _one_repeat(split, known, encoder, settings.bf16, ns, repeat, device)
    return table


def best_others(table: pd.DataFrame) -> pd.DataFrame:
    """Ours beside the classifier of highest mean `harmonic` that is fitted again, chosen on these results.

    Returns:
        A line for each condition: other, its name; means over repeats of the scores of ours, of other_harmonic,
        other_new_nll, other_old_nll, means_harmonic, again_harmonic, balanced_harmonic and balanced_old_accuracy;
        difference in `harmonic`, with low, high and p over repeats; loss, of accuracy on the old classes against
        before, ours.
    """
    rows = []
    for condition, own in table.groupby("condition", sort=False):
        by_method = {str(name): rows.sort_values("repeat") for name, rows in own.groupby("method", sort=False)}
        ours, balanced, again = (by_method.pop(name) for name in (OURS, BALANCED, AGAIN))
        best = max(by_method, key=lambda name: by_method[name]["harmonic"].mean())
        row: dict[str, Any] = {"condition": condition, "other": best}
        row |= {name: float(ours[name].mean()) for name in SCORES}
        row |= {f"other_{name}": float(by_method[best][name].mean()) for name in ("harmonic", "new_nll", "old_nll")}
        row["means_harmonic"] = float(by_method["class_means"]["harmonic"].mean())
        row["again_harmonic"] = float(again["harmonic"].mean())
        row |= {f"balanced_{name}": float(balanced[name].mean()) for name in ("harmonic", "old_accuracy")}
        row["loss"] = float((ours["before"] - ours["old_accuracy"]).mean())
        row |= compare_repeats(ours["harmonic"].to_numpy(), by_method[best]["harmonic"].to_numpy())
        rows.append(row)
    return pd.DataFrame(rows)

"""Finding wrong labels: `find_label_issues` compared with cleanlab, which has several classifiers to choose from.

Labels are made wrong in several ways and at several rates, of digits, and of rows of `--embeddings` that are not of the
test set. cleanlab gets
probabilities of five-fold cross-validation by each of the classifiers, and ranks by self-confidence or by normalised
margin; *best other* is the classifier and score of highest mean average precision among these and 50 nearest
neighbours, chosen for each row of the table after the fact. Means over repeats, which draw other wrong labels; p of
paired t-tests of the average precision. *flagged* is the F1 of what is flagged: of cleanlab's default filter.
*precision* is that of the first half of as many rows as there are wrong labels, as expected by `expected_precision` and
as it is.
"""

import warnings
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_rel
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attnknn import expected_precision, find_label_issues
from attnknn.core.artifacts import TEST, Embeddings
from attnknn.experiments.corruption import NOISES, class_similarity, noisy_labels
from benchmarks.comparison import Row, peer

SIZES: dict[str, dict[str, Any]] = {
    "full": {"rows": 3000, "rates": (0.1, 0.2, 0.4)},
    "quick": {"rows": 300, "rates": (0.2,)},
}
FIRST = 100
Scores = dict[str, float]


def classifiers(n_columns: int, seed: int) -> dict[str, Any]:
    """Those whose probabilities cleanlab gets."""
    scaled = StandardScaler()
    rbf = RBFSampler(gamma=1 / n_columns, n_components=1000, random_state=seed)
    return {
        "logistic": make_pipeline(scaled, LogisticRegression(max_iter=200)),
        "RBF logistic": make_pipeline(scaled, rbf, LogisticRegression(C=10, max_iter=200)),
        "MLP": make_pipeline(scaled, MLPClassifier((128,), early_stopping=True, random_state=seed)),
        "50 neighbours": KNeighborsClassifier(50),
    }


def scores(suspicion: np.ndarray, wrong: np.ndarray, flagged: np.ndarray) -> Scores:
    """Average precision, precision of the first 100, area under the ROC curve, and F1 of what is flagged."""
    first = np.argsort(-suspicion, kind="stable")[:FIRST]
    return {
        "AP": float(average_precision_score(wrong, suspicion)),
        "first": float(wrong[first].mean()),
        "AUROC": float(roc_auc_score(wrong, suspicion)),
        "F1": float(f1_score(wrong, flagged)),
    }


def others(z: np.ndarray, labels: np.ndarray, wrong: np.ndarray, seed: int) -> dict[str, Scores]:
    """Scores of cleanlab with each classifier and ranking."""
    from cleanlab.filter import find_label_issues as flag
    from cleanlab.rank import get_label_quality_scores

    folds, result = StratifiedKFold(5, shuffle=True, random_state=seed), {}
    for name, classifier in classifiers(z.shape[1], seed).items():
        with warnings.catch_warnings(action="ignore"):  # of iterations that end at their limit
            probs: Any = cross_val_predict(classifier, z, labels, cv=folds, method="predict_proba")
        flagged = flag(labels, probs, n_jobs=1)
        for ranking in ("self_confidence", "normalized_margin"):
            quality = get_label_quality_scores(labels, probs, method=ranking)
            result[f"{name}, {ranking.replace('_', ' ')}"] = scores(-quality, wrong, flagged)
    return result


def one_repeat(z: np.ndarray, y: np.ndarray, kind: str, rate: float, seed: int) -> tuple[Scores, Mapping[str, Scores]]:
    """Scores of ours, with expected and true precision, and of the others."""
    n_classes = int(y.max()) + 1
    similarity = class_similarity(z, y, n_classes) if kind == "instance" else None
    labels = noisy_labels(y, rate, n_classes, kind, np.random.default_rng(seed), similarity)
    wrong = labels != y
    issues = find_label_issues(z, labels, random_state=seed)
    quality, half = issues["label_quality"].to_numpy(), int(wrong.sum()) // 2
    own = scores(-quality, wrong, issues["is_label_issue"].to_numpy())
    own["expected"] = expected_precision(issues)[half - 1]
    own["true"] = float(wrong[np.argsort(quality, kind="stable")[:half]].mean())
    return own, others(z, labels, wrong, seed)


def summary(name: str, repeats: list[tuple[Scores, Mapping[str, Scores]]]) -> Row:
    """A row of the table."""

    def mean(scores: list[Scores], score: str) -> float:
        return float(np.mean([one[score] for one in scores]))

    ours, theirs = [own for own, _ in repeats], [other for _, other in repeats]
    best = max(theirs[0], key=lambda method: mean([one[method] for one in theirs], "AP"))
    other = [one[best] for one in theirs]
    pairs = {score: f"{mean(ours, score):.3f} / {mean(other, score):.3f}" for score in ("AP", "first", "AUROC", "F1")}
    p = ttest_rel([one["AP"] for one in ours], [one["AP"] for one in other]).pvalue if len(ours) > 1 else np.nan
    return {
        "noise": name,
        "best other": best,
        "average precision, ours / other": pairs["AP"],
        "p": f"{p:.2g}",
        f"precision of the first {FIRST}": pairs["first"],
        "AUROC": pairs["AUROC"],
        "flagged": pairs["F1"],
        "precision, expected / true": f"{mean(ours, 'expected'):.2f} / {mean(ours, 'true'):.2f}",
    }


def measure(
    threads: int, repeats: int, rows: int, rates: tuple[float, ...], embeddings: Path | None = None
) -> list[Row]:
    """A row for each kind of noise and rate."""
    if peer("cleanlab") is None:
        return [{"noise": "cleanlab is not installed"}]
    data = {"digits": load_digits(return_X_y=True)}
    if embeddings is not None:
        e = Embeddings.load(embeddings)
        unseen = e.part != TEST
        data[embeddings.resolve().parents[1].name] = np.asarray(e.z)[unseen], np.asarray(e.y)[unseen]
    table = []
    for name, (z, y) in data.items():
        chosen = np.random.default_rng(0).permutation(len(y))[:rows]
        z, y = np.asarray(z, dtype=np.float32)[chosen], np.asarray(y)[chosen]
        for kind, rate in product(NOISES, rates):
            results = [one_repeat(z, y, kind, rate, seed) for seed in range(repeats)]
            table.append(summary(f"{name} ({len(y):,}), {kind} {rate:.0%}", results))
    return table

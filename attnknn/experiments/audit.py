"""Find wrong labels: `find_label_issues` beside cleanlab with several classifiers.

Labels of rows are made wrong in several ways and at several rates. cleanlab gets probabilities of five-fold
cross-validation by each of the classifiers, and ranks rows by each of its scores; what it flags is that of its filter.

Cleaning: a logistic regression is fitted on the labels as made wrong, with those that are flagged replaced by the
predicted ones, and on the right ones; its accuracy is that on other rows, whose labels are right.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attnknn.classifier.audit import expected_precision
from attnknn.classifier.label_issues import find_label_issues
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.paired_tests import Table, compare_repeats
from attnknn.experiments.corruption import class_similarity, noisy_labels

OURS = "find_label_issues"
RANKINGS = ("self_confidence", "normalized_margin")
_BOOSTING = 640  # columns · classes at most for gradient boosting, which takes minutes with more
_LEAST = 10  # rows of two classes, for five folds with both
FIRST = 100  # rows, or as many as there are wrong labels if they are fewer
SCORES = ("average_precision", "precision_at_100", "auroc", "f1")
CLEANING = ("accuracy_given", "accuracy_cleaned", "accuracy_right")  # of the logistic regression
EXPECTED = ("expected_precision", "precision", "expected_wrong", "wrong")  # of ours: as expected, and as it is
COLUMNS = ("condition", "repeat", "method", *SCORES, *EXPECTED)  # and `CLEANING`, where there are test rows


def classifiers(rows: int, n_columns: int, n_classes: int, seed: int) -> dict[str, Any]:
    """Those whose probabilities cleanlab gets, by five folds of the rows."""
    scaled, most = StandardScaler(), rows - -(-rows // 5)  # rows that each is fitted on
    rbf = RBFSampler(gamma=1 / n_columns, n_components=1000, random_state=seed)
    stopping = most >= 10 * n_classes  # on a tenth of the rows, with some of each class
    boosting = {"boosting": HistGradientBoostingClassifier(max_iter=50, random_state=seed)}
    return {
        "logistic": make_pipeline(scaled, LogisticRegression(max_iter=200)),
        "rbf": make_pipeline(scaled, rbf, LogisticRegression(C=10, max_iter=200)),
        "mlp": make_pipeline(scaled, MLPClassifier((128,), early_stopping=stopping, random_state=seed)),
        **(boosting if n_columns * n_classes <= _BOOSTING else {}),
        "knn_10": KNeighborsClassifier(min(10, most)),
        "knn_50": KNeighborsClassifier(min(50, most)),
    }


def detection_scores(suspicion: np.ndarray, wrong: np.ndarray, flagged: np.ndarray) -> dict[str, float]:
    """`SCORES` of a ranking of rows by suspicion, highest first, and of flagged ones."""
    first = np.argsort(-suspicion, kind="stable")[: min(FIRST, int(wrong.sum()))]
    values = (
        average_precision_score(wrong, suspicion),
        wrong[first].mean(),
        roc_auc_score(wrong, suspicion),
        f1_score(wrong, flagged),
    )
    return dict(zip(SCORES, map(float, values), strict=True))


def cleanlab_scores(
    z: Float[np.ndarray, "N D"],
    labels: Int[np.ndarray, " N"],
    wrong: np.ndarray,
    methods: dict[str, Any],
    seed: int,
) -> dict[str, dict[str, float]]:
    """Scores of cleanlab by `<classifier>, <ranking>`."""
    from cleanlab.filter import find_label_issues as flag
    from cleanlab.rank import get_label_quality_scores

    folds, result = StratifiedKFold(5, shuffle=True, random_state=seed), {}
    for name, classifier in methods.items():
        with warnings.catch_warnings(action="ignore"):  # of iterations that end at their limit, and rare classes
            probs: Any = cross_val_predict(classifier, z, labels, cv=folds, method="predict_proba")
        flagged = flag(labels, probs, n_jobs=1)
        for ranking in RANKINGS:
            quality = get_label_quality_scores(labels, probs, method=ranking)
            result[f"{name}, {ranking}"] = detection_scores(-quality, wrong, flagged)
    return result


def _one_repeat(
    z: Float[np.ndarray, "N D"],
    y: Int[np.ndarray, " N"],
    test: tuple[np.ndarray, np.ndarray],
    kind: str,
    rate: float,
    seed: int,
) -> Table:
    n_classes = int(y.max()) + 1
    similarity = class_similarity(z, y, n_classes) if kind == "instance" else None
    labels = noisy_labels(y, rate, n_classes, kind, np.random.default_rng(seed), similarity)
    wrong = labels != y
    issues = find_label_issues(z, labels, random_state=seed, n_jobs=1)
    quality, half = issues["label_quality"].to_numpy(), max(1, int(wrong.sum()) // 2)
    ours = detection_scores(-quality, wrong, issues["is_label_issue"].to_numpy())
    ours["expected_precision"] = float(expected_precision(issues)[half - 1])
    ours["precision"] = float(wrong[np.argsort(quality, kind="stable")[:half]].mean())
    ours["expected_wrong"], ours["wrong"] = float((1 - quality).mean()), float(wrong.mean())
    methods = classifiers(len(z), z.shape[1], n_classes, seed)
    if len(test[1]):
        for name, own in zip(CLEANING, (labels, issues["predicted_label"], y), strict=True):
            ours[name] = float(methods["logistic"].fit(z, own).score(*test))
    rows = {OURS: ours, **cleanlab_scores(z, labels, wrong, methods, seed)}
    return [{"condition": f"{kind} {rate}", "repeat": seed, "method": name, **own} for name, own in rows.items()]


def audit_conditions(
    z: Float[np.ndarray, "N D"],
    y: Int[np.ndarray, " N"],
    test: tuple[np.ndarray, np.ndarray],
    kinds: Sequence[str],
    rates: Sequence[float],
    repeats: int,
    workers: int,
    track: Callable[..., Iterable[Table]],
) -> Table:
    """Scores of every method under every kind and rate of wrong labels, with other wrong labels in each repeat.

    Those of ours also have expected_precision and precision of the first half of as many rows as there are wrong
    labels, and the share of wrong labels, expected and true.

    No rows unless two classes have `_LEAST` rows.

    Args:
        y: right labels 0 … C−1.
        test: other vectors and their labels, for `CLEANING`; may be empty.
        track: results, total= → results, behind a progress bar.
    """
    if np.sort(np.bincount(y, minlength=2))[-2] < _LEAST:
        return []
    if len(np.unique(y)) == 2:  # then asymmetric noise is symmetric
        kinds = list(dict.fromkeys("symmetric" if kind == "asymmetric" else kind for kind in kinds))
    calls = [partial(_one_repeat, z, y, test, *item) for item in product(kinds, rates, range(repeats))]
    done = track(run_parallel(calls, workers), total=len(calls))
    return [row for rows in done for row in rows]


def best_others(table: pd.DataFrame) -> pd.DataFrame:
    """Ours beside the method of cleanlab with the highest mean average precision, chosen on these results.

    Returns:
        A line for each condition: other, the name of the method; <score> and other_<score>, means over repeats;
        difference in average precision, with low, high and p of a paired t test over repeats; and what only ours has,
        with cleaning_low, cleaning_high and cleaning_p of accuracy_cleaned − accuracy_given.
    """
    rows = []
    for condition, own in table.groupby("condition", sort=False):
        by_method = {str(name): rows.sort_values("repeat") for name, rows in own.groupby("method", sort=False)}
        ours = by_method.pop(OURS)
        best = max(by_method, key=lambda name: by_method[name]["average_precision"].mean())
        other = by_method[best]
        row: dict[str, Any] = {"condition": condition, "other": best}
        row |= compare_repeats(ours["average_precision"].to_numpy(), other["average_precision"].to_numpy())
        row |= {name: float(ours[name].mean()) for name in (*SCORES, *EXPECTED)}
        if CLEANING[0] in ours:
            row |= {name: float(ours[name].mean()) for name in CLEANING}
            gain = compare_repeats(ours["accuracy_cleaned"].to_numpy(), ours["accuracy_given"].to_numpy())
            row |= {f"cleaning_{name}": value for name, value in gain.items()}
        row |= {f"other_{score}": float(other[score].mean()) for score in SCORES}
        rows.append(row)
    return pd.DataFrame(rows)

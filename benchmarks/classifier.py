"""`AttnKNNClassifier` compared with scikit-learn's nearest neighbours, plain and calibrated, on the same splits.

All get the same standardised columns. `tuned` are distance-weighted neighbours with k chosen by NLL in 5-fold
cross-validation on the training rows, as ours does; the others have their defaults. Means ± standard deviation over
splits of three quarters to one. `noisy labels` are synthetic, with 30 % of the labels redrawn. NLL counts a
probability of 0 as 2.2e-16, as scikit-learn's `log_loss` does. `lower NLL`: in how many splits that of
AttnKNNClassifier() is lower than this method's.
"""

from collections.abc import Mapping
from time import perf_counter
from typing import Any, cast

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attnknn import AttnKNNClassifier
from attnknn.evaluation.metrics import scores
from benchmarks.comparison import Row

SIZES: dict[str, dict[str, Any]] = {
    "full": {"splits": 10, "noisy": 4000, "names": ("breast_cancer", "digits", "wine", "noisy labels")},
    "quick": {"splits": 2, "noisy": 200, "names": ("wine", "noisy labels")},
}
OURS = "AttnKNNClassifier()"
NOISE = 0.3  # share of labels redrawn


def data(name: str, noisy: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and labels of a dataset; `noisy` is the number of rows of `noisy labels`."""
    if name == "noisy labels":
        options = {"flip_y": NOISE, "class_sep": 1.5, "random_state": 0}
        X, y = make_classification(noisy, 20, n_informative=10, n_classes=4, **options)  # type: ignore[arg-type]
        return np.asarray(X), np.asarray(y)
    loaders = {"breast_cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}
    return cast(tuple[np.ndarray, np.ndarray], loaders[name](return_X_y=True))


def methods(seed: int) -> Mapping[str, Any]:
    """Ours and the peers."""
    ks = {"n_neighbors": [1, 3, 5, 10, 20, 50]}

    def tuned() -> GridSearchCV:
        return GridSearchCV(KNeighborsClassifier(weights="distance"), ks, cv=5, scoring="neg_log_loss")

    return {
        OURS: AttnKNNClassifier(random_state=seed),
        "AttnKNNClassifier(weights='distance')": AttnKNNClassifier(weights="distance", random_state=seed),
        "KNeighborsClassifier()": KNeighborsClassifier(),
        "tuned KNeighborsClassifier": tuned(),
        "CalibratedClassifierCV(KNeighborsClassifier())": CalibratedClassifierCV(KNeighborsClassifier()),
        "CalibratedClassifierCV(…, method='isotonic')": CalibratedClassifierCV(
            KNeighborsClassifier(), method="isotonic"
        ),
        "CalibratedClassifierCV(tuned)": CalibratedClassifierCV(tuned()),
        "CalibratedClassifierCV(tuned, method='isotonic')": CalibratedClassifierCV(tuned(), method="isotonic"),
    }


def measure(threads: int, repeats: int, splits: int, noisy: int, names: tuple[str, ...]) -> list[Row]:
    """A row per dataset and method."""
    table: list[Row] = []
    for name in names:
        X, y = data(name, noisy)
        results: dict[str, list[tuple[float, ...]]] = {}
        folds = StratifiedShuffleSplit(splits, test_size=0.25, random_state=0)
        for seed, (train, test) in enumerate(folds.split(X, y)):
            for method, model in methods(seed).items():
                start = perf_counter()
                fitted = make_pipeline(StandardScaler(), model).fit(X[train], y[train])
                seconds = perf_counter() - start
                probs = np.asarray(fitted.predict_proba(X[test]))
                floored = np.maximum(probs, np.finfo(np.float64).eps)  # plain kNN gives probabilities of 0
                values = scores(floored, y[test])
                results.setdefault(method, []).append((values["accuracy"], values["nll"], values["ece"], seconds))
        for method, rows in results.items():
            mean, sd = np.mean(rows, 0), np.std(rows, 0, ddof=1)
            lower = sum(ours[1] < theirs[1] for ours, theirs in zip(results[OURS], rows, strict=True))
            cells = {score: f"{mean[i]:.3f} ± {sd[i]:.3f}" for i, score in enumerate(("accuracy", "NLL", "ECE"))}
            cells |= {"fit, s": f"{mean[3]:.2f}", "lower NLL": "" if method == OURS else f"{lower} of {len(rows)}"}
            table.append({"data": f"{name} ({len(y):,})", "method": method, **cells})
    return table

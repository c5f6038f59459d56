"""`AttnKNNClassifier` beside scikit-learn's nearest neighbours, plain and calibrated: scores on the same splits.

Everybody gets the same standardised columns. `tuned` are distance-weighted neighbours with the number of lowest NLL by
5-fold cross-validation within the training rows, as ours chooses within them too; the others have their defaults. Means
± standard deviation over splits of three quarters to one; of `noisy labels`, which are made up, 30 % of the labels are
drawn anew. NLL counts a probability of 0 as 2.2e-16, as scikit-learn's `log_loss` does. `lower NLL` is in how many
splits that of AttnKNNClassifier() is lower than this method's.
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
from benchmarks.compared import Row

SIZES: dict[str, dict[str, Any]] = {
    "full": {"splits": 10, "noisy": 4000, "names": ("breast_cancer", "digits", "wine", "noisy labels")},
    "quick": {"splits": 2, "noisy": 200, "names": ("wine", "noisy labels")},
}
OURS = "AttnKNNClassifier()"
NOISE = 0.3  # share of labels drawn anew


def data(name: str, noisy: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and labels of a dataset; `noisy labels` are so many made-up rows."""
    if name == "noisy labels":
        made = make_classification(
            noisy, 20, n_informative=10, n_classes=4, flip_y=NOISE, class_sep=1.5, random_state=0
        )
        return np.asarray(made[0]), np.asarray(made[1])
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
    """A row for each dataset and method."""
    table: list[Row] = []
    for name in names:
        X, y = data(name, noisy)
        found: dict[str, list[tuple[float, ...]]] = {}
        cut = StratifiedShuffleSplit(splits, test_size=0.25, random_state=0)
        for seed, (known, asked) in enumerate(cut.split(X, y)):
            for method, model in methods(seed).items():
                start = perf_counter()
                fitted = make_pipeline(StandardScaler(), model).fit(X[known], y[known])
                seconds = perf_counter() - start
                probs = np.asarray(fitted.predict_proba(X[asked]))
                floored = np.maximum(probs, np.finfo(np.float64).eps)  # plain kNN gives classes no chance
                of = scores(floored, y[asked])
                found.setdefault(method, []).append((of["accuracy"], of["nll"], of["ece"], seconds))
        for method, rows in found.items():
            mean, sd = np.mean(rows, 0), np.std(rows, 0, ddof=1)
            lower = sum(ours[1] < theirs[1] for ours, theirs in zip(found[OURS], rows, strict=True))
            cells = {"accuracy": f"{mean[0]:.3f} ± {sd[0]:.3f}", "NLL": f"{mean[1]:.3f} ± {sd[1]:.3f}"}
            cells |= {"ECE": f"{mean[2]:.3f} ± {sd[2]:.3f}", "fit, s": f"{mean[3]:.2f}"}
            cells |= {"lower NLL": "" if method == OURS else f"{lower} of {len(rows)}"}
            table.append({"data": f"{name} ({len(y):,})", "method": method, **cells})
    return table

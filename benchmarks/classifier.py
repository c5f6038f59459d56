"""`AttnKNNClassifier` compared with nearest neighbours and classifiers without neighbours, on the same splits.

All get the same standardised columns. `tuned` peers choose k, C, leaf size or learning rate by NLL in cross-validation
on the training rows, on which ours tunes itself too; `calibrated` ones add a temperature, as ours does, fitted on
cross-validated predictions of the tuned model; its time is without the tuning. The others have their defaults. Means ±
standard deviation over splits of three quarters to one. `noisy labels` are synthetic, with 30 % of the labels redrawn.
NLL counts a probability of 0 as 2.2e-16, as scikit-learn's `log_loss` does. `accuracy − ours` and `NLL − ours` are
differences within a split; ours is better where the first is below 0 and the second above.
"""

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, cast

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
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
Scores = tuple[float, float, float, float]  # accuracy, NLL, ECE, seconds of the fit
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
        "AttnKNNClassifier(null_scores='shares')": AttnKNNClassifier(null_scores="shares", random_state=seed),
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


def without_neighbours(seed: int) -> Mapping[str, GridSearchCV]:
    """Classifiers without neighbours, tuned."""
    forest, boosting = RandomForestClassifier(random_state=seed), HistGradientBoostingClassifier(random_state=seed)
    grids = {
        "logistic regression": (LogisticRegression(max_iter=1000), {"C": [0.01, 0.03, 0.1, 0.3, 1, 10]}),
        "random forest": (forest, {"min_samples_leaf": [1, 3, 10]}),
        "HistGradientBoosting": (boosting.set_params(early_stopping=True), {"learning_rate": [0.03, 0.1]}),
    }
    return {name: GridSearchCV(*pair, cv=3, scoring="neg_log_loss") for name, pair in grids.items()}


def fitted_models(seed: int, X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Any, float]]:
    """Name, fitted model and seconds of each method."""

    def fit(model: Any) -> tuple[Any, float]:
        start = perf_counter()
        fitted = make_pipeline(StandardScaler(), model).fit(X, y)
        return fitted, perf_counter() - start

    for name, model in methods(seed).items():
        yield name, *fit(model)
    for name, search in without_neighbours(seed).items():
        tuned, seconds = fit(search)
        yield f"tuned {name}", tuned, seconds
        best = clone(tuned[-1].best_estimator_)
        calibrated = CalibratedClassifierCV(best, method="temperature", ensemble=False)  # type: ignore[arg-type]
        yield f"calibrated {name}", *fit(calibrated)


def split_scores(seed: int, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> dict[str, Scores]:
    """Scores of each method on one split."""
    results = {}
    for method, fitted, seconds in fitted_models(seed, X[train], y[train]):
        probs = np.asarray(fitted.predict_proba(X[test]))
        values = scores(np.maximum(probs, np.finfo(np.float64).eps), y[test])  # plain kNN gives probabilities of 0
        results[method] = values["accuracy"], values["nll"], values["ece"], seconds
    return results


def summary(name: str, splits: Sequence[Mapping[str, Scores]]) -> list[Row]:
    """A row per method from the scores on each split."""
    table: list[Row] = []
    for method in splits[0]:
        rows = np.array([results[method] for results in splits])
        mean, sd = rows.mean(0), rows.std(0, ddof=1)
        cells = {score: f"{mean[i]:.3f} ± {sd[i]:.3f}" for i, score in enumerate(("accuracy", "NLL", "ECE"))}
        differences = rows - [results[OURS] for results in splits]
        for i, score in enumerate(("accuracy − ours", "NLL − ours")):
            own, spread = differences.mean(0)[i], differences.std(0, ddof=1)[i]
            cells[score] = "" if method == OURS else f"{own:+.3f} ± {spread:.3f}"
        table.append({"data": name, "method": method, **cells, "fit, s": f"{mean[3]:.2f}"})
    return table


def measure(threads: int, repeats: int, splits: int, noisy: int, names: tuple[str, ...]) -> list[Row]:
    """A row per dataset and method."""
    table: list[Row] = []
    for name in names:
        X, y = data(name, noisy)
        folds = enumerate(StratifiedShuffleSplit(splits, test_size=0.25, random_state=0).split(X, y))
        table += summary(f"{name} ({len(y):,})", [split_scores(seed, X, y, *split) for seed, split in folds])
    return table

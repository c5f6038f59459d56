"""Baseline classifiers of tables, tuned on val rows: kNN on the columns, logistic regression, forests, boosting."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Predictions, Split
from attnknn.core.errors import InputError

Settings = dict[str, Any]
_KS = (5, 20, 50, 10, 100, 1, 32, 3)  # six tries cover the range
_PRIORS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1)


def _grid(**values: Sequence[Any]) -> list[Settings]:
    """A list of settings from parallel lists of values."""
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


class Peer(NamedTuple):
    """A classifier: import path, fixed arguments, grid, and the names of its arguments for threads and seed."""

    path: str
    fixed: Settings
    grid: list[Settings]  # near the defaults first
    threads: str = ""
    seed: str = "random_state"

    def make(self, settings: Settings, seed: int, threads: int) -> Any:
        """An unfitted classifier with these settings; imports the package."""
        module, _, name = self.path.rpartition(".")
        arguments = {self.threads: threads, self.seed: seed} | self.fixed | settings
        arguments.pop("", None)
        return getattr(import_module(module), name)(**arguments)


_KNN = "sklearn.neighbors.KNeighborsClassifier"
PEERS: dict[str, Peer] = {
    "raw-uniform": Peer(_KNN, {"weights": "uniform"}, _grid(n_neighbors=_KS), "n_jobs", ""),
    "raw-distance": Peer(_KNN, {"weights": "distance"}, _grid(n_neighbors=_KS), "n_jobs", ""),
    "logistic": Peer(
        "sklearn.linear_model.LogisticRegression",
        {"max_iter": 2000},
        _grid(C=(1.0, 0.1, 10.0, 0.01, 100.0, 0.001)),
        seed="",
    ),
    "forest": Peer(
        "sklearn.ensemble.RandomForestClassifier",
        {"n_estimators": 300},
        _grid(min_samples_leaf=(1, 2, 5, 1, 2, 5), max_features=("sqrt", "sqrt", "sqrt", 0.5, 0.5, 0.5)),
        "n_jobs",
    ),
    "boosting": Peer(
        "sklearn.ensemble.HistGradientBoostingClassifier",
        {},
        _grid(
            learning_rate=(0.1, 0.05, 0.05, 0.03, 0.03, 0.1),
            max_iter=(100, 200, 200, 400, 400, 50),
            max_leaf_nodes=(31, 31, 15, 31, 8, 15),
            l2_regularization=(0.0, 0.0, 1.0, 10.0, 1.0, 1.0),
        ),
    ),
    "catboost": Peer(
        "catboost.CatBoostClassifier",
        {"verbose": False, "allow_writing_files": False},
        _grid(
            learning_rate=(0.05, 0.05, 0.1, 0.03, 0.03, 0.1),
            iterations=(500, 1000, 500, 1000, 2000, 250),
            depth=(6, 6, 6, 8, 6, 4),
        ),
        "thread_count",
        "random_seed",
    ),
    "xgboost": Peer(
        "xgboost.XGBClassifier",
        {},
        _grid(
            learning_rate=(0.1, 0.05, 0.05, 0.03, 0.03, 0.1),
            n_estimators=(200, 400, 400, 800, 800, 100),
            max_depth=(6, 6, 4, 6, 3, 3),
            subsample=(1.0, 0.8, 0.8, 0.8, 0.8, 1.0),
        ),
        threads="n_jobs",
    ),
}


def fit_and_predict(
    split: Split, names: Sequence[str], tries: int, seed: int, threads: int, refit: bool = False
) -> tuple[Predictions, Predictions, dict[str, Settings]]:
    """Fit each classifier on bank and fit rows, select its settings by NLL on val rows, and predict test and val rows.

    Probabilities are (1 − ε)·p + ε·class shares, since kNN and forests predict 0 for some classes; ε is selected with
    the settings.

    Args:
        split: a table.
        names: of `PEERS`.
        tries: settings tried, the first of each grid.
        refit: whether to fit again, with the selected settings, on val rows too before predicting test rows.

    Returns:
        Predictions of the test and of the val rows, and the selected settings by name.

    Raises:
        InputError: a package is not installed.
    """
    train = np.flatnonzero((split.part == BANK) | (split.part == FIT))
    x, y = np.asarray(split.x), np.asarray(split.y)
    shares = np.bincount(y[train]) / len(train)
    rows = {part: split.rows(part) for part in (VAL, TEST)}
    probs: dict[int, list[np.ndarray]] = {part: [] for part in rows}
    selected: dict[str, Settings] = {}
    for name in names:
        candidates = []
        for settings in PEERS[name].grid[:tries]:
            if settings.get("n_neighbors", 1) > len(train):
                continue
            try:
                model = PEERS[name].make(settings, seed, threads)
            except ImportError:
                raise InputError(
                    f"peers.methods: {name} is not installed; run `pip install {name}`, or take it out of the list"
                ) from None
            model.fit(x[train], y[train])
            on_val = model.predict_proba(x[rows[VAL]])
            for prior in _PRIORS:
                true_probs = ((1 - prior) * on_val + prior * shares)[np.arange(len(on_val)), y[rows[VAL]]]
                candidates.append((-float(np.log(true_probs).mean()), {**settings, "prior": prior}, model))
        _, selected[name], model = min(candidates, key=lambda candidate: candidate[0])
        prior = selected[name]["prior"]
        for part, idx in rows.items():
            if refit and part == TEST:
                model.fit(x[split.part != TEST], y[split.part != TEST])
            mixed = (1 - prior) * model.predict_proba(x[idx]) + prior * shares
            probs[part].append(mixed.astype(np.float32))
    val, test = (
        Predictions(idx.astype(np.int32), y[idx], np.stack(probs[part]), tuple(names), split.classes)
        for part, idx in rows.items()
    )
    return test, val, selected

"""Classifiers of scikit-learn and others on a table's columns, or on embeddings; tuned on val rows."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, PartProbs, Split
from attnknn.core.errors import InputError

Settings = dict[str, Any]
_KS = (5, 20, 50, 10, 100, 1, 32, 3)  # six tries cover the range
_PRIORS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.5)
_FOLDS = 5  # that predict fit rows


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


def _rbf(gamma: float, C: float, random_state: int) -> Any:
    """Logistic regression on random Fourier features of the RBF kernel (Rahimi & Recht 2007)."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    features = RBFSampler(gamma=gamma, n_components=1000, random_state=random_state)
    return make_pipeline(features, LogisticRegression(C=C, max_iter=200, tol=1e-3))


def _mlp(alpha: float, random_state: int) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier((128,), alpha=alpha, max_iter=30, random_state=random_state)
    return make_pipeline(StandardScaler(), network)


def _cleaned(classifier: Any, seed: int) -> Any:
    from cleanlab.classification import CleanLearning

    return CleanLearning(classifier, seed=seed, cv_n_folds=3)


def _cleaned_linear(C: float, random_state: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _cleaned(LogisticRegression(C=C, max_iter=200), random_state)


def _cleaned_rbf(gamma: float, C: float, random_state: int) -> Any:
    return _cleaned(_rbf(gamma, C, random_state), random_state)


# On embeddings, which are unit vectors.
EMBEDDING_PEERS: dict[str, Peer] = {
    "linear": PEERS["logistic"]._replace(fixed={"max_iter": 200}, grid=_grid(C=(10.0, 1.0, 100.0, 0.1, 1e3, 1e4))),
    "rbf": Peer(
        f"{__name__}._rbf", {}, _grid(gamma=(1.0, 4.0, 1.0, 0.25, 16.0, 1.0), C=(10.0, 10.0, 100.0, 100.0, 10.0, 1e4))
    ),
    "mlp": Peer(f"{__name__}._mlp", {}, _grid(alpha=(1e-3, 0.1, 1.0, 10.0, 1e-5, 100.0))),
    "boosting": PEERS["boosting"]._replace(
        fixed={"max_bins": 63},
        grid=_grid(learning_rate=(0.1, 0.05, 0.03), max_leaf_nodes=(31, 15, 8), l2_regularization=(0.0, 1.0, 10.0)),
    ),
}
# Fitted again without the rows whose labels cleanlab finds wrong (Northcutt et al. 2021).
CLEANED_PEERS: dict[str, Peer] = {
    "cleaned-linear": Peer(f"{__name__}._cleaned_linear", {}, _grid(C=(10.0, 1.0))),
    "cleaned-rbf": Peer(f"{__name__}._cleaned_rbf", {}, _grid(gamma=(1.0, 4.0), C=(10.0, 10.0))),
}


Data = tuple[np.ndarray, np.ndarray, np.ndarray]  # x (N, F), y (N,), part (N,)


def fit_and_predict(
    data: Sequence[Data],
    peers: Mapping[str, Peer],
    tries: int,
    seed: int,
    threads: int,
    train: Collection[int] = (BANK, FIT),
    refit: bool = False,
    transition: np.ndarray | None = None,
) -> tuple[PartProbs, dict[str, Settings]]:
    """Fit each classifier on rows of some parts, select its settings by NLL on val rows, and predict.

    Probabilities are (1 − ε)·p + ε·class shares, since kNN and forests predict 0 for some classes; ε is selected with
    the settings. Fit rows that train the classifiers are predicted out of fold, and rows of cross-fitting folds by
    classifiers fitted on the bank of the fold, with the selected settings.

    Args:
        data: the main rows, whose val rows select and whose test rows are predicted; then those of cross-fitting folds.
        tries: settings tried, the first of each grid.
        train: parts to fit on.
        refit: whether to fit again, with the selected settings, on val rows too before predicting test rows.
        transition: T (C, C) of `heads.label_noise` where val labels may be wrong: settings are selected through it.

    Returns:
        Probabilities of fit and val rows, of all data in their order, and of test rows; and the selected settings.

    Raises:
        InputError: a package is not installed.
    """
    x, y, part = data[0]
    rows = np.flatnonzero(np.isin(part, list(train)))
    fit, val, test = (np.flatnonzero(part == p) for p in (FIT, VAL, TEST))
    counts = np.maximum(np.bincount(y[rows], minlength=int(y.max()) + 1), 1)
    shares = counts / counts.sum()

    def fitted(name: str, settings: Settings, x: np.ndarray, y: np.ndarray) -> Any:
        try:
            model = peers[name].make(settings, seed, threads)
        except ImportError:
            raise InputError(
                f"peers.methods: {name} is not installed; run `pip install {name}`, or take it out of the list"
            ) from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the limits of iterations are settings
            return model.fit(x, y)

    def predict(model: Any, queries: np.ndarray, prior: float) -> np.ndarray:
        probs = np.zeros((len(queries), len(shares)))
        probs[:, getattr(model, "clf", model).classes_] = model.predict_proba(queries)
        return ((1 - prior) * probs + prior * shares).astype(np.float32)

    def on_fit_rows(name: str, settings: Settings, prior: float, model: Any) -> np.ndarray:
        if FIT not in train:
            return predict(model, x[fit], prior)
        probs = np.empty((len(fit), len(shares)), dtype=np.float32)
        for i in np.unique(fold):
            others = np.setdiff1d(rows, fit[fold == i])
            probs[fold == i] = predict(fitted(name, settings, x[others], y[others]), x[fit[fold == i]], prior)
        return probs

    # Every fold has its share of each class, and identical rows are in one fold.
    fold = np.empty(len(fit), dtype=int)
    fold[np.lexsort((np.random.default_rng(seed).random(len(fit)), y[fit]))] = np.arange(len(fit)) % _FOLDS
    _, first, inverse = np.unique(x[fit], axis=0, return_index=True, return_inverse=True)
    fold = fold[first][inverse.reshape(-1)]

    probs: PartProbs = {}
    selected: dict[str, Settings] = {}
    for name, peer in peers.items():
        candidates = []
        for settings in peer.grid[:tries]:
            if settings.get("n_neighbors", 1) > len(rows):
                continue
            model = fitted(name, settings, x[rows], y[rows])
            for prior in _PRIORS:
                on_val_rows = predict(model, x[val], prior)
                labels = on_val_rows if transition is None else on_val_rows @ transition
                true_probs = labels[np.arange(len(val)), y[val]]
                candidates.append((-float(np.log(true_probs).mean()), settings, prior, model))
        _, settings, prior, model = min(candidates, key=lambda candidate: candidate[0])
        on_fit, on_val = [on_fit_rows(name, settings, prior, model)], [predict(model, x[val], prior)]
        for x_fold, y_fold, part_fold in data[1:]:
            of_fold = fitted(name, settings, x_fold[part_fold == BANK], y_fold[part_fold == BANK])
            on_fit.append(predict(of_fold, x_fold[part_fold == FIT], prior))
            on_val.append(predict(of_fold, x_fold[part_fold == VAL], prior))
        if refit:
            model = fitted(name, settings, x[part != TEST], y[part != TEST])
        probs[name] = np.concatenate(on_fit), np.concatenate(on_val), predict(model, x[test], prior)
        selected[name] = {**settings, "prior": prior}
    return probs, selected


def table_peers(
    split: Split, names: Sequence[str], folds: Sequence[np.ndarray] = (), **settings: Any
) -> tuple[PartProbs, dict[str, Settings]]:
    """`fit_and_predict` with classifiers of `PEERS` on a table's columns.

    Args:
        folds: (N,) part of each row in each fold of cross-fitting.
    """
    x, y = np.asarray(split.x), np.asarray(split.y)
    data = [(x, y, part) for part in (split.part, *folds)]
    return fit_and_predict(data, {name: PEERS[name] for name in names}, **settings)


def embedding_peers(
    embeddings: Sequence[Embeddings], names: Sequence[str], held_out: bool = False, **settings: Any
) -> tuple[PartProbs, dict[str, Settings]]:
    """`fit_and_predict` with classifiers of `EMBEDDING_PEERS` on embeddings.

    Args:
        embeddings: the main ones, then those of cross-fitting folds, if any.
        held_out: whether to fit them on fit rows alone, too; not with folds, whose fit rows are in other spaces.

    Returns:
        As `bank-<name>` those fitted on bank rows, as `heldout-<name>` on fit rows; `linear` on these only, since the
        linear head is fitted on the bank.
    """
    data = [(np.asarray(e.z), np.asarray(e.y), e.part) for e in embeddings]
    parts = {"bank": (BANK, names)} | ({"heldout": (FIT, ["linear", *names])} if held_out and len(data) == 1 else {})
    probs: PartProbs = {}
    selected: dict[str, Settings] = {}
    for start, (train, own) in parts.items():
        if any(len(np.unique(y[part == train])) < 2 for _, y, part in data):
            continue
        results = fit_and_predict(data, {name: EMBEDDING_PEERS[name] for name in own}, train=[train], **settings)
        probs = {**probs, **{f"{start}-{name}": value for name, value in results[0].items()}}
        selected |= {f"{start}-{name}": value for name, value in results[1].items()}
    return probs, selected

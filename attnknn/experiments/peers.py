"""Other classifiers of tables: what a practitioner would try first, tuned on val rows as ours are."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Predictions, Split
from attnknn.core.errors import InputError, require

Settings = dict[str, Any]
_KS = (5, 20, 50, 10, 100, 1, 32, 3)  # six tries reach from one end to the other
_PRIORS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1)


def _knn(weights: str) -> Callable[[Settings, int, int], Any]:
    def made(settings: Settings, seed: int, threads: int) -> Any:
        from sklearn.neighbors import KNeighborsClassifier

        return KNeighborsClassifier(weights=weights, n_jobs=threads, **settings)  # type: ignore[arg-type]

    return made


def _logistic(settings: Settings, seed: int, threads: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=2000, **settings)


def _forest(settings: Settings, seed: int, threads: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(300, n_jobs=threads, random_state=seed, **settings)


def _boosting(settings: Settings, seed: int, threads: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed, **settings)


def _catboost(settings: Settings, seed: int, threads: int) -> Any:
    from catboost import CatBoostClassifier  # type: ignore[import-not-found]

    return CatBoostClassifier(
        random_seed=seed, thread_count=threads, verbose=False, allow_writing_files=False, **settings
    )


def _xgboost(settings: Settings, seed: int, threads: int) -> Any:
    from xgboost import XGBClassifier  # type: ignore[import-not-found]

    return XGBClassifier(random_state=seed, n_jobs=threads, **settings)


def _grid(**values: Sequence[Any]) -> list[Settings]:
    """Settings of parallel lists, one after another."""
    return [dict(zip(values, of, strict=True)) for of in zip(*values.values(), strict=True)]


# name: (what makes it, what is tried, near the defaults first)
PEERS: dict[str, tuple[Callable[[Settings, int, int], Any], list[Settings]]] = {
    "raw-uniform": (_knn("uniform"), _grid(n_neighbors=_KS)),
    "raw-distance": (_knn("distance"), _grid(n_neighbors=_KS)),
    "logistic": (_logistic, _grid(C=(1.0, 0.1, 10.0, 0.01, 100.0, 0.001))),
    "forest": (
        _forest,
        _grid(min_samples_leaf=(1, 2, 5, 1, 2, 5), max_features=("sqrt", "sqrt", "sqrt", 0.5, 0.5, 0.5)),
    ),
    "boosting": (
        _boosting,
        _grid(
            learning_rate=(0.1, 0.05, 0.05, 0.03, 0.03, 0.1),
            max_iter=(100, 200, 200, 400, 400, 50),
            max_leaf_nodes=(31, 31, 15, 31, 8, 15),
            l2_regularization=(0.0, 0.0, 1.0, 10.0, 1.0, 1.0),
        ),
    ),
    "catboost": (
        _catboost,
        _grid(
            learning_rate=(0.05, 0.05, 0.1, 0.03, 0.03, 0.1),
            iterations=(500, 1000, 500, 1000, 2000, 250),
            depth=(6, 6, 6, 8, 6, 4),
        ),
    ),
    "xgboost": (
        _xgboost,
        _grid(
            learning_rate=(0.1, 0.05, 0.05, 0.03, 0.03, 0.1),
            n_estimators=(200, 400, 400, 800, 800, 100),
            max_depth=(6, 6, 4, 6, 3, 3),
            subsample=(1.0, 0.8, 0.8, 0.8, 0.8, 1.0),
        ),
    ),
}


def distinct(grid: Sequence[Settings], columns: int) -> list[Settings]:
    """Settings without those that say what one before them says: of four columns, half is the square root too."""
    found: dict[str, Settings] = {}
    for settings in grid:
        counted, share = dict(settings), settings.get("max_features")
        if share is not None:  # as scikit-learn counts them
            counted["max_features"] = max(1, int(columns**0.5 if share == "sqrt" else share * columns))
        found.setdefault(repr(counted), settings)
    return list(found.values())


def answers(
    split: Split, names: Sequence[str], tries: int, seed: int, threads: int, refit: bool = False
) -> tuple[Predictions, Predictions, dict[str, Settings]]:
    """What each of them says of test and val rows, and the settings chosen.

    They learn from bank and fit rows: none of them needs rows for a head or a calibration. The answer is
    (1 − ε)·p + ε·class shares, as kNN and forests say of some classes that they have no chance; settings and ε are
    those of lowest NLL on val rows.

    Args:
        split: a table.
        names: of `PEERS`.
        tries: settings that each may try, as far as it has so many.
        refit: whether they learn again, once their settings are chosen, from val rows too, before they see test rows.

    Raises:
        InputError: an unknown name, or a package that is not installed.
    """
    require(not split.is_image, "peers: they are classifiers of tables, and these rows are images")
    unknown = [name for name in names if name not in PEERS]
    require(not unknown, f"peers.methods: {', '.join(unknown)} unknown; there are {', '.join(PEERS)}")
    known = np.flatnonzero((split.part == BANK) | (split.part == FIT))
    x, y = np.asarray(split.x), np.asarray(split.y)
    shares = np.bincount(y[known]) / len(known)
    rows = {part: split.rows(part) for part in (TEST, VAL)}
    probs: dict[int, list[np.ndarray]] = {TEST: [], VAL: []}
    chosen: dict[str, Settings] = {}
    for name in names:
        make, grid = PEERS[name]
        tried = []
        for settings in distinct(grid[:tries], x.shape[1]):
            if settings.get("n_neighbors", 1) > len(known):
                continue
            try:
                model = make(settings, seed, threads)
            except ImportError:
                raise InputError(
                    f"peers.methods: {name} is not installed; run `pip install {name}`, or take it out of the list"
                ) from None
            model.fit(x[known], y[known])
            on_val = model.predict_proba(x[rows[VAL]])
            for prior in _PRIORS:
                own = ((1 - prior) * on_val + prior * shares)[np.arange(len(on_val)), y[rows[VAL]]]
                tried.append((-float(np.log(own).mean()), {**settings, "prior": prior}, model))
        _, chosen[name], model = min(tried, key=lambda one: one[0])
        prior = chosen[name]["prior"]
        for part, at in ((VAL, rows[VAL]), (TEST, rows[TEST])):
            if refit and part == TEST:
                model.fit(x[split.part != TEST], y[split.part != TEST])
            mixed = (1 - prior) * model.predict_proba(x[at]) + prior * shares
            probs[part].append(mixed.astype(np.float32))

    def predictions(part: int) -> Predictions:
        at = rows[part].astype(np.int32)
        return Predictions(at, y[rows[part]], np.stack(probs[part]), tuple(names), split.classes)

    return predictions(TEST), predictions(VAL), chosen

"""`AttnKNNClassifier`: parameters and arrays; fit, changes, predictions, explanations, save and load."""

import pickle
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import clone

from attnknn import AttnKNNClassifier
from tests.fuzz.judge import Judge
from tests.fuzz.mutate import VALUES, damage_array

_PARAMS: dict[str, list[Any]] = {
    "n_neighbors": [1, 3, 50, 2**40, np.int64(4)], "weights": ["distance", "uniform", "attention"],
    "metric": ["l2", "cosine"], "index": ["flat", "hnsw", "ivf", "ivfpq", "auto"],
    "null_scores": ["shares", "means", "linear", "auto"], "prototypes": ["auto", True],
    "calibration": ["vector", "temperature", None], "prior": [None, 0.5, 1e-300, 1 - 1e-16], "abstain": [0.0, 0.5, 1],
    "max_iter": [1, 5], "learning_rate": [0.003, 1e-300, 1e6], "n_jobs": [None, 1, -1, 2**40],
    "device": ["auto", "cpu", "cuda", "cuda:9", "gpu", "meta", "mps", ""], "random_state": [None, 0],
}  # fmt: skip


def _array(rng: Random, array: np.ndarray) -> Any:
    """An array as users may give it, more or less broken."""
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        array = damage_array(rng, array)
    forms: list[Any] = [array.tolist, lambda: np.asfortranarray(array), lambda: rng.choice(VALUES)]
    forms += [lambda: pd.DataFrame(array), lambda: pd.DataFrame(array).add_prefix("x")] * (array.ndim == 2)
    forms += [lambda: pd.Series(array)] * (array.ndim == 1)
    forms += [lambda: np.ma.masked_invalid(array)] * (array.dtype.kind == "f")
    forms += [lambda: scipy.sparse.csr_matrix(array)] * (array.ndim == 2 and array.dtype.str in ("<f8", "<i8"))
    return rng.choice(forms)() if rng.random() < 0.4 else array


def run(rng: Random, judge: Judge) -> None:
    """Fit a classifier, then call its methods."""
    n, d = rng.choice([2, 3, 8, 30, 30, 60]), rng.choice([1, 2, 5])
    params = {"n_neighbors": 5, "max_iter": 3}
    for name in rng.sample(list(_PARAMS), rng.choice([1, 3, 5])):
        params[name] = rng.choice(_PARAMS[name] if rng.random() < 0.9 else VALUES)
    generator, y = np.random.default_rng(rng.getrandbits(32)), np.arange(n) % rng.choice([2, 3, n])
    X = generator.normal(size=(n, d)) + y[:, None] + rng.choice([0, 0, 1e8])
    X *= 10.0 ** rng.choice([0, 0, 0, 0, -300, -20, 6, 15, 18, 19, 20, 100, 300])
    X = X[:1].repeat(n, 0) if rng.random() < 0.1 else X
    names = np.array(["no", "yes", "é\r", "", "nan", "x" * 99])
    y = rng.choice([y, y, y > 0, names[y % 6], y.astype(float), y + 0.5, y - 2**40, names[y % 2].astype("O")])
    data = (_array(rng, X), y) if rng.random() < 0.8 else (X, _array(rng, y))
    more = {"sample_weight": _array(rng, generator.random(n))} if rng.random() < 0.2 else {}
    more |= {"held_out": rng.choice([(X, y), (_array(rng, X), y), X, 3])} if rng.random() < 0.15 else {}
    text = f"AttnKNNClassifier(**{params}).fit(*{data!r:.900}, **{more!r:.300})"
    model = judge.call(text, lambda: AttnKNNClassifier(**params).fit(*data, **more))
    if model is None:
        return
    for _ in range(rng.choice([0, 1, 2, 4])):
        _use(rng, judge, model, X, y)
    if judge.call("save", lambda: [model.save(judge.out / "m")], writes=[judge.out / "m"]):
        judge.classifier(model)


def _use(rng: Random, judge: Judge, model: AttnKNNClassifier, X: np.ndarray, y: np.ndarray) -> None:
    """Call a method with arguments like those of `fit`, more or less broken."""
    rows = _array(rng, X[: rng.choice([1, 3, len(X)])] * rng.choice([1, 1, 1, 1e5, 1e20]))
    junk, labels = rng.choice(VALUES), _array(rng, y)
    ids = rng.choice([[0], [0, 1], np.arange(len(X) // 2), [-1], [2**62], [[0]], [0.5], [True], [], ["a"], junk])
    calls = {
        "predict": lambda: model.predict(rows),
        "predict_proba": lambda: judge.probabilities(model.predict_proba(rows)),
        "predict_set": lambda: model.predict_set(rows, rng.choice([0.1, 0.9, junk])),
        "explain": lambda: judge.probabilities(model.explain(rows).probabilities),
        "explain_rows": lambda: model.explain_rows(ids),
        "counterfactual": lambda: model.counterfactual(rows[:1], how=rng.choice(["forget", "relabel", junk])),
        "kneighbors": lambda: model.kneighbors(rows, rng.choice([1, 5, 2**40, junk])),
        "partial_fit": lambda: model.partial_fit(rows, labels),
        "forget": lambda: model.forget(ids),
        "score": lambda: model.score(rows, labels),
        "pickle": lambda: pickle.loads(pickle.dumps(model)),
        "clone": lambda: clone(model),
    }
    name = rng.choice(list(calls))
    judge.call(f"{name}: {rows!r:.600}, {labels!r:.200}, {ids!r:.200}, {junk!r:.100}", lambda: [calls[name]()])

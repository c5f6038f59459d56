"""`AttnKNNClassifier`: attention-weighted nearest neighbours by scikit-learn's conventions."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from attnknn.classifier.held_out import asked_space, fold_parts, held_out_spaces
from attnknn.classifier.memory import Memory
from attnknn.classifier.persistence import (
    AnyHead,
    Parts,
    load_parts,
    packed_head,
    read_consistently,
    save_parts,
    unpacked_head,
)
from attnknn.classifier.predictor import Counterfactual, Explanation, Predictor
from attnknn.core.artifacts import FIT, VAL
from attnknn.core.errors import InputError, require
from attnknn.evaluation.calibration import fitted_scaling
from attnknn.evaluation.conformal import conformal_p
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.heads.classify import classify_part
from attnknn.heads.fit import fit_head
from attnknn.index.validation import LARGEST
from attnknn.neighbours.space import EmbeddingSpace, classes_of

# What the study chose on validation rows of its datasets; see params.yaml of the project.
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0)
PRIORS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5)
KS = (1, 3, 5, 10, 16, 20, 32, 50, 64)
FEATURES = ("distance", "gap", "label_share", "agreement", "density", "class_prior")
_FITTED = ("n_features_in_", "n_iter_", "_unit", "_usual_weight", "_doubt")  # plain values that `save` keeps


class AttnKNNClassifier(ClassifierMixin, BaseEstimator):
    """k nearest neighbours whose weights are learned by attention, with probabilities that can be believed.

    A query's answer is the weighted vote of its k nearest training rows and of a null neighbour of each class:

        w = softmax([sim₁/τ + bias₁ … sim_K/τ + bias_K, n₁ … n_C]),     p(c) = w_null,c + Σᵢ wᵢ·1[yᵢ = c]

    `fit` keeps all rows as the memory, and learns τ, the biases and the null neighbours (see `heads.Attention`) on rows
    that were taken out of it in folds, so that no row is its own neighbour and no neighbour knows the query's label.
    Half of the held-out rows fit, the other half decide when to stop, and calibrate `predict_set`. Columns should be on
    one scale, as for any nearest neighbours: put a `StandardScaler` in front, or give embeddings.

    It passes scikit-learn's `check_estimator` but for `check_sample_weight_equivalence_on_dense_data`: a row of weight
    2 weighs what two of weight 1 do at its place, but is one of the `n_neighbors`, and one row of a fold. Weights are
    those of the memory alone: learning, calibration and prediction sets count every row that was held out alike, so a
    row whose label is not believed is better left out, by a weight of 0. (`check_array_api_input` is skipped by
    scikit-learn itself.) Rows that were copied, to balance classes or otherwise, are in the memory when their copies
    are held out, which makes it too sure: give `sample_weight` instead.

    Parameters
    ----------
    n_neighbors : int, default=50
        Neighbours that answer; all there are where the memory has fewer. `distance` and `uniform` weights choose among
        fewer as well, by the log-loss of held-out rows.
    weights : {'attention', 'distance', 'uniform'}, default='attention'
        How votes are weighed: learned, by distance, or all alike.
    metric : {'l2', 'cosine'}, default='l2'
        Euclidean distance, or that between rows scaled to unit length.
    index : {'auto', 'flat', 'hnsw', 'ivf', 'ivfpq'}, default='auto'
        How neighbours are searched; `flat` compares all rows, `auto` does so up to a hundred thousand.
    calibration : {'temperature', 'vector', None}, default='temperature'
        Fitted on held-out rows, and left out where it does not lower their log-loss.
    prototypes : bool, default=True
        Whether `attention` may let the mean of each class in the memory vote beside its neighbours, for as much as
        held-out rows say. That makes probabilities better where an encoder has drawn classes together, and explanations
        less whole: `explain` tells how much of an answer is due to means, which may be most of it.
    prior : float or None, default=None
        Mass of the null neighbours, above 0 and below 1; None learns it.
    abstain : float, default=0.0
        Confidence below which `abstains` says so. `predict` answers always.
    max_iter : int, default=200
        Epochs at most; it ends after ten without a lower log-loss on held-out rows.
    learning_rate : float, default=0.003
        Of the head.
    device : str, default='auto'
        Where the head learns and neighbours are searched: 'cpu', 'cuda', 'cuda:1', or 'auto' for a GPU if there is one.
    n_jobs : int or None, default=None
        Threads; None leaves their number as torch and BLAS have it, -1 takes all.
    random_state : int, RandomState instance or None, default=None
        Draws the folds, the order of batches and the head's first weights.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X had some.
    memory_ : Memory
        The rows that answer.
    head_ : Attention, Distance or Uniform
        What weighs their votes.
    calibration_ : tuple of two ndarrays of shape (n_classes,)
        Scale and bias of the calibration softmax(scale·log p + bias); ones and zeros where there is none.
    n_iter_ : int
        Epochs that the head learned; 1 for `distance` and `uniform`, whose grid is searched once.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AttnKNNClassifier(random_state=0).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "weights": [StrOptions({"attention", "distance", "uniform"})],
        "metric": [StrOptions({"l2", "cosine"})],
        "index": [StrOptions({"auto", "flat", "hnsw", "ivf", "ivfpq"})],
        "calibration": [StrOptions({"vector", "temperature"}), None],
        "prototypes": ["boolean"],
        "prior": [Interval(Real, 0, 1, closed="neither"), None],
        "abstain": [Interval(Real, 0, 1, closed="both")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "device": [str],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_neighbors: int = 50,
        *,
        weights: Literal["attention", "distance", "uniform"] = "attention",
        metric: Literal["l2", "cosine"] = "l2",
        index: Literal["auto", "flat", "hnsw", "ivf", "ivfpq"] = "auto",
        calibration: Literal["vector", "temperature"] | None = "temperature",
        prototypes: bool = True,
        prior: float | None = None,
        abstain: float = 0.0,
        max_iter: int = 200,
        learning_rate: float = 0.003,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.index = index
        self.calibration = calibration
        self.prototypes = prototypes
        self.prior = prior
        self.abstain = abstain
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, held_out: tuple[Any, Any] | None = None) -> Self:
        """Take rows into the memory, and learn how much each neighbour counts.

        Args:
            X: (N, D) real numbers.
            y: (N,) labels of any kind.
            sample_weight: (N,) how much each row counts as a neighbour; rows of 0 are left out.
            held_out: (X, y) of rows to learn on in the place of folds of X, for an X that comes from an encoder trained
                on these very rows and their labels: their neighbourhoods are purer than those of new rows. They do not
                come into the memory; `partial_fit` adds them. A `Pipeline` does not transform them: give them as the
                classifier is to see them.

        Raises:
            ValueError: one class alone, values that are not finite, or a parameter that is not allowed. The classifier
                is as it was then, as it is where learning is interrupted.
        """
        before = dict(vars(self))
        try:
            return self._fit(X, y, sample_weight, held_out)
        except BaseException:  # Ctrl-C too
            vars(self).clear()
            vars(self).update(before)
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any, held_out: tuple[Any, Any] | None) -> Self:
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self.classes_, numbers = np.unique(y, return_inverse=True)
        require(len(self.classes_) > 1, "y: a single class; a classifier needs two classes or more")
        few = f"n_samples = {len(X)}: three are needed, so that some can be held out to learn on; or give held_out"
        require(len(X) > 2 or held_out is not None, few)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._origin, self._unit = self._scaling(X)
        self._usual_weight = float(weight.mean())
        z = self._vectors(X)
        with self._threads():
            self.memory_ = Memory.build(z, numbers, self._relative(weight), len(self.classes_), kind=self.index)
            args = (self.memory_, z, len(self.classes_), int(self.n_neighbors))
            if held_out is None:
                spaces = held_out_spaces(*args, fold_parts(numbers, seed))
            else:
                pair = isinstance(held_out, tuple | list) and len(held_out) == 2
                require(pair, "held_out: give a pair (X, y) of rows and their labels")
                spaces = [asked_space(*args, *self._held_out_rows(*held_out), seed)]
            with torch.random.fork_rng():  # the caller's random numbers stay as they are
                self._learn(spaces, seed)
        return self

    def _held_out_rows(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Vectors and class numbers of rows to learn on."""
        X, y = validate_data(self, X, y, dtype=np.float64, reset=False, ensure_min_samples=2)
        self._check_known("held_out", y)
        return self._vectors(X), np.searchsorted(self.classes_, y)

    def _check_known(self, name: str, y: np.ndarray) -> None:
        unknown = np.setdiff1d(y, self.classes_)
        known, new = (", ".join(map(str, of[:10])) for of in (self.classes_, unknown))
        require(len(unknown) == 0, f"{name}: {new} are new classes; this model knows {known}; fit it anew")

    def _learn(self, spaces: list[EmbeddingSpace], seed: int) -> None:
        k = int(min(self.n_neighbors, *(space.neighbours.ids.shape[1] for space in spaces)))
        device = self._device()
        priors = PRIORS if self.prior is None else (self.prior,)
        self.n_iter_ = 1
        if self.weights == "attention":
            queries = sum(int((space.embeddings.part == FIT).sum()) for space in spaces)
            parts = {"features": FEATURES, "prototypes": bool(self.prototypes), "learned_prior": self.prior is None}
            self.head_, history = fit_head(
                spaces,
                k_train=k,
                kind="attention",
                parts=parts,
                epochs=self.max_iter,
                batch_size=min(256, max(16, queries // 40)),
                lr=self.learning_rate,
                weight_decay=0.05,
                patience=10,
                restarts=1,
                label_smoothing=0.0,
                hard_weight=1.0,
                entropy_weight=0.0,
                calibration_weight=0.0,
                temperatures=TEMPERATURES,
                priors=priors,
                seed=seed,
                device=device,
            )
            self.n_iter_ = int(history[-1]["epoch"])
        else:
            ks = sorted({of for of in KS if of < k} | {k})
            self.head_ = cast(AnyHead, tuned_baselines(spaces, ks, TEMPERATURES, priors)[0][self.weights])
        fit, val = (classify_part(self.head_, spaces, part, k, device) for part in (FIT, VAL))
        y_fit, y_val = (classes_of(spaces, part) for part in (FIT, VAL))
        # Laplace's rule of succession: so many rows cannot vouch for more confidence than that.
        self._doubt = 1 / (len(y_val) + 1)
        self.calibration_ = fitted_scaling(self.calibration, fit, y_fit, val, y_val)
        if isinstance(self.head_, torch.nn.Module):
            self.head_ = cast(AnyHead, self.head_.double().cpu())
        self._held_out = self._decider().calibrated(val), y_val

    def _decider(self) -> Predictor:
        check_is_fitted(self)
        return Predictor(
            self.memory_,
            cast(AnyHead, self.head_),
            *self.calibration_,
            self._doubt,
            int(self.n_neighbors),
            self._device(),
        )

    def _scaling(self, X: np.ndarray) -> tuple[np.ndarray, float]:
        """What is taken off each column, and what all are divided by: distances keep their order."""
        if self.metric == "cosine":
            return np.zeros(X.shape[1]), 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            origin = X.mean(0)
            away = X - origin
            largest = float(np.abs(away).max())
        require(math.isfinite(largest), "X: values too large to be added up; scale them down")
        power = float(_power(np.array(largest)))
        unit = power * math.sqrt(float(((away / power) ** 2).sum(1).mean()))
        return origin, unit if unit > 0 else 1.0

    def _relative(self, weight: np.ndarray) -> np.ndarray:
        """Weights as the memory has them: 1 is usual, and none is too small for float32."""
        of = weight / self._usual_weight
        far = f"sample_weight: one is over {LARGEST:g} times the mean of those that were fitted; give smaller ones"
        require(float(of.max()) <= LARGEST, far)
        return np.maximum(of, np.finfo(np.float32).tiny)

    def _vectors(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # what is too large for float32 the bank refuses
            z = (X - self._origin) / self._unit
            if self.metric == "cosine":
                z = z / _power(np.abs(z).max(1, keepdims=True))
                z = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), np.finfo(np.float64).tiny)
            return np.ascontiguousarray(z, dtype=np.float32)

    def _queries(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._vectors(cast(np.ndarray, validate_data(self, X, dtype=np.float64, reset=False)))

    def _device(self) -> str:
        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        known = torch.cuda.is_available() or not self.device.startswith("cuda")
        require(known, f"device: {self.device} asked for, but torch sees no GPU here; set device to auto or cpu")
        return self.device

    @contextmanager
    def _threads(self) -> Iterator[None]:
        if self.n_jobs is None:
            yield
            return
        from joblib import effective_n_jobs

        before, count = torch.get_num_threads(), effective_n_jobs(self.n_jobs)
        torch.set_num_threads(count)
        try:
            with threadpool_limits(count):
                yield
        finally:
            torch.set_num_threads(before)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (B, C), columns in the order of `classes_`; float64, rows sum to 1."""
        z = self._queries(X)
        with self._threads():
            return self._decider().probabilities(z)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row (B,)."""
        top = self.predict_proba(X).argmax(1)
        return self.classes_[top]

    def abstains(self, X: Any) -> np.ndarray:
        """Whether the confidence of each answer (B,) is below `abstain`."""
        return self.predict_proba(X).max(1) < self.abstain

    def predict_set(self, X: Any, alpha: float = 0.1) -> np.ndarray:
        """Classes (B, C), bool, that hold the true one with probability 1 − alpha or more: split conformal sets.

        That is a mean over rows like those that were fitted, in any order, and it holds nearly, since the held-out rows
        that it is calibrated on have also stopped the training. The likeliest class is always in. Rows that are added
        or forgotten change the answers, but not this calibration.
        """
        return self.sets_from_proba(self.predict_proba(X), alpha)

    def sets_from_proba(self, probabilities: np.ndarray, alpha: float = 0.1) -> np.ndarray:
        """What `predict_set` gives for rows of these probabilities (B, C)."""
        require(0 < alpha < 1, f"alpha: {alpha}; give a share of misses above 0 and below 1")
        likeliest = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
        return likeliest | (conformal_p(*self._held_out, probabilities, "split") > alpha)

    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
        return_weights: bool = False,
    ) -> Any:
        """Distances and ids (B, K) of the nearest rows of the memory, nearest first.

        Ids are positions in the X of `fit`, then those that `partial_fit` gave.

        Args:
            X: (B, D); None asks for the neighbours of each row of the memory, itself left out, in the order of ids.
            n_neighbors: None for the parameter of that name.
            return_weights: the weights in the votes too, which are those of the parameter's number of neighbours.
        """
        check_is_fitted(self)
        most = len(self.memory_) - (X is None)
        k = min(self.n_neighbors, most) if n_neighbors is None else n_neighbors
        require(1 <= k <= most, f"n_neighbors: {k} asked for; the memory can give 1 … {most}")
        require(not return_weights or X is not None, "return_weights: give X")
        z = self.memory_.vectors() if X is None else self._queries(X)
        own = self.memory_.ids if X is None else None
        ids, sims = self.memory_.bank.search(z, k, exclude=own, device=self._device())
        found: list[np.ndarray] = [self._distances(sims)] if return_distance else []
        found.append(ids)
        if return_weights:
            with self._threads():
                weights = np.concatenate([weights for _, _, weights, _ in self._decider().parts(z)])
            found.append(np.pad(weights, ((0, 0), (0, max(0, k - weights.shape[1]))))[:, :k])
        return tuple(found) if len(found) > 1 else found[0]

    def _distances(self, sims: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(-sims.astype(np.float64), 0)) * self._unit

    def explain(self, X: Any) -> Explanation:
        """What decided each answer; see `Explanation`."""
        return self._explained(self._queries(X))

    def explain_rows(self, ids: Any) -> Explanation:
        """What would decide the answers for rows of the memory, given by their ids, if each were not in it.

        Raises:
            ValueError: an id is not there.
        """
        each = [self._explained(row[None], [name]) for name, row in self._own(ids)]
        return Explanation(*(np.concatenate([getattr(of, f.name) for of in each]) for f in fields(Explanation)))

    def _own(self, ids: Any) -> list[tuple[int, np.ndarray]]:
        """Rows of the memory by their ids, which are checked."""
        check_is_fitted(self)
        names = _row_ids(ids)
        require(len(names) > 0, "ids: none given")
        at = self.memory_.positions(names)
        missing = names[at < 0]
        require(len(missing) == 0, f"ids: {', '.join(map(str, missing[:10]))} not in the memory")
        return list(zip(names.tolist(), self.memory_.vectors()[at], strict=True))

    def _explained(self, z: np.ndarray, without: Sequence[int] = ()) -> Explanation:
        with self._threads():
            found = self._decider().explained(z, without)
        labels, predictions = self.classes_[found.labels], self.classes_[found.predictions]
        return replace(found, labels=labels, predictions=predictions, distances=self._distances(found.distances))

    def counterfactual(
        self, X: Any = None, how: Literal["forget", "relabel"] = "forget", most: int = 50, *, ids: Any = None
    ) -> list[Counterfactual]:
        """What would change each answer: the neighbours without which it would be another, or with another label.

        Each step takes the neighbour that weighs most for the answer, and asks again: `forget` takes it away, and
        another may come in its place; `relabel` gives it the label of the answer that is second. The probabilities are
        those of `predict_proba` once that was done; nothing is done here.

        Args:
            X: (B, D).
            how: `forget` or `relabel`.
            most: rows at most.
            ids: rows of the memory to ask for in the place of X, each taken as forgotten itself.
        """
        require(how in ("forget", "relabel"), f"how: {how}; allowed are forget and relabel")
        require((X is None) != (ids is None), "X and ids: give one of them")
        with self._threads():
            decider = self._decider()
            if ids is None:
                found = [decider.counterfactual(row[None], how, most) for row in self._queries(X)]
            else:
                found = [decider.counterfactual(row[None], how, most, [name]) for name, row in self._own(ids)]
        named = self.classes_
        return [replace(of, label=named[of.label], prediction=named[of.prediction]) for of in found]

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to the memory; nothing is learned anew. On a model that is not fitted it is `fit`.

        Args:
            classes: (C,) labels there may be; only read where the model is not fitted, to be checked.
            sample_weight: as in `fit`, in its units.

        Raises:
            ValueError: a label that `fit` did not see, since no weights were learned for it.
        """
        if not hasattr(self, "memory_"):
            if classes is not None:
                unknown = np.setdiff1d(y, classes)
                require(len(unknown) == 0, f"classes: {', '.join(map(str, unknown))} in y, but not among them")
            return self.fit(X, y, sample_weight)
        X, y = validate_data(self, X, y, dtype=np.float64, reset=False)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self._check_known("y", y)
        if len(X):
            with self._threads():
                self.memory_.add(self._vectors(X), np.searchsorted(self.classes_, y), self._relative(weight))
        return self

    def forget(self, ids: Any) -> Self:
        """Take rows out of the memory by their ids; nothing is learned anew.

        Raises:
            ValueError: an id is not there, or fewer than two rows would be left.
        """
        check_is_fitted(self)
        with self._threads():
            self.memory_.forget(_row_ids(ids))
        return self

    def save(self, path: str | Path, also: Callable[[Path], None] | None = None) -> None:
        """Write the fitted model to a folder, in one step; see `saved_model`.

        Args:
            also: puts more files into the new folder, which `load` then checks too.

        Raises:
            ValueError: labels that JSON cannot tell, or something that is no model is at `path`.
        """
        check_is_fitted(self)
        labels = self.classes_.tolist()
        plain = all(isinstance(label, str | int | float | bool) for label in labels)
        require(plain, f"classes: labels of type {type(labels[0]).__name__} cannot be saved; take strings or numbers")
        (scale, bias), (probs, y) = self.calibration_, self._held_out
        # A search over parameters hands numpy's numbers over, which JSON does not know.
        params = {name: of.item() if isinstance(of, np.generic) else of for name, of in self.get_params().items()}
        state = params["random_state"] if isinstance(params["random_state"], int) else None
        about = {
            "params": {**params, "random_state": state},
            "classes": labels,
            "classes_dtype": self.classes_.dtype.str,
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "fitted": {name: getattr(self, name) for name in _FITTED},
        }
        arrays = {"origin": self._origin, "scale": scale, "bias": bias, "probs": probs, "y": y}
        save_parts(Parts(self.memory_, cast(AnyHead, self.head_), arrays, about), Path(path), also)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote; it answers as it did.

        Raises:
            ValueError: there is none, it is damaged, or of a later format.
        """
        memory, head, of, about = read_consistently(Path(path), lambda: load_parts(Path(path)))
        try:
            model = cls(**about["params"])
            model.classes_ = np.array(about["classes"], dtype=np.dtype(about["classes_dtype"]))
            fitted = {name: about["fitted"][name] for name in _FITTED}
            if about["feature_names"]:
                fitted["feature_names_in_"] = np.array(about["feature_names"], dtype=object)
            model._origin, model.memory_, model.head_ = of["origin"], memory, head
            model.calibration_, model._held_out = (of["scale"], of["bias"]), (of["probs"], of["y"])
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}: not a whole model ({error}); fit and save it anew") from None
        vars(model).update(fitted)
        return model

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        if "head_" in state:
            state["head_"] = packed_head(state["head_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "head_" in state:
            state = {**state, "head_": unpacked_head(*state["head_"])}
        super().__setstate__(state)


def _power(largest: np.ndarray) -> np.ndarray:
    """Powers of two, to divide by before squares are taken, which would leave float64; nothing is rounded by it."""
    return np.ldexp(1.0, np.frexp(largest)[1] - 1)


def _row_ids(ids: Any) -> np.ndarray:
    """Ids of rows as int64 (M,)."""
    given = np.atleast_1d(ids)
    require(given.dtype.kind in "iu" or not given.size, f"ids: of type {given.dtype}; give integers")
    return given.astype(np.int64).ravel()

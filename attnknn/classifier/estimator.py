"""`AttnKNNClassifier`: attention-weighted nearest neighbours with scikit-learn's interface."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, validate_data

from attnknn.classifier.audit import AuditMixin
from attnknn.classifier.blocks import labelled_blocks
from attnknn.classifier.changes import ChangeMixin
from attnknn.classifier.explain import ExplainMixin
from attnknn.classifier.fitting import NULL_SCORES, fit_and_calibrate
from attnknn.classifier.held_out import (
    fold_parts,
    held_out_space,
    nearest_sims,
    query_space,
    sample_rows,
    table_space,
    without_copies,
)
from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.classifier.novelty import fit_novelty
from attnknn.classifier.predict import PredictMixin
from attnknn.classifier.predictor import Predictor
from attnknn.classifier.saving import SaveMixin
from attnknn.classifier.scaling import as_dense, fit_scaling, refuse_dwarfing, to_vectors
from attnknn.core.artifacts import BANK
from attnknn.core.device import limit_threads, resolve_device
from attnknn.core.duplicates import first_identical, mostly_duplicates, split_groups
from attnknn.core.errors import require
from attnknn.evaluation.calibration import blocks
from attnknn.evaluation.conformal import true_class_scores
from attnknn.heads.label_noise import DOUBT, correct_labels, draw_labels
from attnknn.index.validation import LARGEST
from attnknn.neighbours.space import EmbeddingSpace

_FEW_HIDDEN = 0.01  # share of a table's rows that the statistics of the others may lack


class AttnKNNClassifier(SaveMixin, PredictMixin, ExplainMixin, AuditMixin, ChangeMixin, ClassifierMixin, BaseEstimator):
    """k-nearest-neighbour classifier with learned attention weights and calibrated probabilities.

    A prediction is the weighted vote of a query's k nearest training rows and of a null neighbour of each class:

        w = softmax([sim₁/τ + bias₁ … sim_K/τ + bias_K, n₁ … n_C]),     p(c) = w_null,c + Σᵢ wᵢ·1[yᵢ = c]

    `fit` keeps all rows as the memory, and learns τ, the biases and the null neighbours (see
    `heads.attention.Attention`) by cross-fitting: queries are held out of the memory in folds, so that no row is its
    own neighbour and no neighbour statistic depends on the query's label. One half of the held-out rows fits the head;
    the other half is for early stopping, calibration and `predict_set`. Columns should be on one scale, as for any
    nearest neighbours: put a `StandardScaler` in front, or give embeddings.

    It passes scikit-learn's `check_estimator` except `check_sample_weight_equivalence_on_dense_data`: a row of weight 2
    has the votes of two identical rows of weight 1, but is one of the `n_neighbors`, and one row of a fold. Weights
    apply to the memory only: held-out rows count equally in fitting, calibration and prediction sets, so give rows with
    untrusted labels a weight of 0. Identical rows are held out together, so that no held-out row has itself as a
    neighbour; near-identical ones are not. In tables of a few categories, with fewer than half of the
    rows distinct, new rows will be copies too, and rows are held out as if all differed.

    Parameters
    ----------
    n_neighbors : int, default=50
        Number of neighbours; all rows if the memory has fewer. `distance` and `uniform` weights also try smaller
        numbers, and take the one of lowest log-loss on held-out rows.
    weights : {'attention', 'distance', 'uniform'}, default='attention'
        How votes are weighted: learned, by distance, or equally.
    metric : {'l2', 'cosine'}, default='l2'
        Euclidean distance, or that between rows scaled to unit length.
    index : {'auto', 'flat', 'hnsw', 'ivf', 'ivfpq'}, default='auto'
        Nearest-neighbour index; `flat` compares all rows, `auto` does so up to 100,000. With `storage` it is an
        inverted file above 10,000 rows, of which `flat` reads all lists; others are not available.
    calibration : {'temperature', 'vector', None}, default='temperature'
        Fitted on held-out rows; skipped if it does not lower their log-loss.
    null_scores : {'auto', 'shares', 'means', 'linear'}, default='auto'
        What scores the classes beside the neighbours in `attention`: class shares, so that neighbours alone decide;
        similarity to the class means; or a logistic regression on the rows of the memory, which the neighbours
        correct. `auto` takes that of lowest log-loss on held-out rows; with over 2,000 to fit on, after 20 epochs, and
        without the regression where rows × columns × classes exceed 3e8. Means and regression improve probabilities and
        make explanations less complete: most of a prediction may be due to them; `explain` returns their share.
    prototypes : bool or 'auto', default='auto'
        True is `null_scores='means'`, False is `null_scores='shares'`.
    label_noise : None, 'auto' or array-like of shape (n_classes, n_classes), default=None
        Whether labels may be wrong. 'auto' estimates the transition matrix T, T[c, g] = P(given label g | true class
        c), from neighbours and a logistic regression, without a label known to be right; a matrix, in the order of
        `classes_`, is taken as it is. Then labels drawn from the probabilities of the true ones vote in place of the
        given labels, head, regression and calibration are fitted through T (Patrini et al. 2017), and `predict_proba`
        returns probabilities of the true label. T takes all rows of a class to be mislabelled alike, and ignores
        weights; 1 % of the class shares is mixed into the answers. 'auto' takes labels as given with fewer than about
        60 rows a class on average; with a class so rare that its row of T cannot be estimated; where wrong ones are not
        significantly more than 2 % of the surest half of the rows, or much rarer in the surest tenth, as where classes
        overlap; where drawn labels are not expected to be right more often; where T is nearly singular, as with half of
        two classes' labels wrong; and if T significantly raises the log-loss of held-out labels (both by two standard
        errors), as it often does for noise near the borders of classes. Overlap may still pass for noise: a class that
        is nowhere more frequent than another is taken for wrong labels of that one. Compare with None.
        Scores on labels that may be wrong cannot tell which choice is better. Only with `attention`, without
        `calibration='vector'`. `predict_set` is then calibrated on labels drawn from their probabilities.
    prior : float or None, default=None
        Total weight of the null neighbours, above 0 and below 1; None learns it. Not with `null_scores='linear'`, whose
        weight is learned.
    decay : float or None, default=None
        For data that change over time: the number of later rows after which the weight of a row is halved. Rows given
        to `partial_fit` are in the order of time, those of `fit` of one age. Votes, class shares, class means and the
        logistic regression follow the weights; the head and the calibration do not change. None keeps all weights.
        Old rows remain among the `n_neighbors`; `keep(n_rows, by='newest')` removes them. Not with `storage`.
    abstain : float, default=0.0
        Confidence below which `abstains` is true. `predict` always returns a label.
    max_iter : int, default=200
        Maximum number of epochs; training stops after ten without a lower log-loss on held-out rows.
    learning_rate : float, default=0.003
        Learning rate of the head.
    storage : str, Path or None, default=None
        Where training rows are kept: None for memory; a folder, or an address such as 's3://bucket/rows.lance', for a
        Lance table, which may be larger than memory. Needs `pip install attnknn[lance]`. See `fit`.
    storage_cache : int, default=1073741824
        Maximum bytes of the table's index that stay in memory; more make predictions of many rows faster.
    device : str, default='auto'
        Device of training and neighbour search: 'cpu', 'cuda', 'cuda:1', or 'auto' for a GPU if available.
    n_jobs : int or None, default=None
        Threads, at most those of the machine; None keeps the settings of torch and BLAS, -1 uses all. Heads are trained
        by one.
    cluster : str or None, default=None
        Address of a Ray cluster, such as '10.0.0.1:6379' or 'auto', whose machines compute the neighbour statistics of
        a table; they must reach `storage`. Needs `pip install attnknn[cluster]`.
    verbose : bool or int, default=False
        Whether `fit` shows progress bars of the head's training on standard error; it ends before `max_iter` when the
        log-loss no longer falls.
    random_state : int, RandomState instance or None, default=None
        For the folds, the order of batches and the head's initial weights.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    new_classes_ : ndarray
        Those of rows added since `fit`, which the head and the calibration do not know; see `predict_set`.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names of a data frame X.
    memory_ : Memory or TableMemory
        The training rows.
    head_ : Attention, Distance or Uniform
        The fitted weighting of votes.
    calibration_ : tuple of two ndarrays of shape (n_classes,)
        Scale and bias of the calibration softmax(scale·log p + bias); ones and zeros without calibration.
    n_duplicates_ : int
        Rows of `fit` identical to an earlier one; not saved, and not counted with `storage`.
    n_conflicting_duplicates_ : int
        Those with another label than the first one; not saved.
    usual_distances_ : ndarray of shape (n_held_out,)
        Distances of the held-out rows to their nearest neighbours, ascending; see `distance_percentiles`.
    null_scores_ : {'shares', 'means', 'linear'}
        The `null_scores` chosen; `shares` for `distance` and `uniform`.
    transition_ : ndarray of shape (n_classes, n_classes) or None
        T of `label_noise`, rows and columns in the order of `classes_`; None if labels are taken as given.
    n_iter_ : int
        Number of epochs; 1 for `distance` and `uniform`, which are tuned by grid search.

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
        "null_scores": [StrOptions({"auto", *NULL_SCORES})],
        "prototypes": ["boolean", StrOptions({"auto"})],
        "label_noise": [StrOptions({"auto"}), "array-like", "sparse matrix", None],
        "prior": [Interval(Real, 0, 1, closed="neither"), None],
        "decay": [Interval(Real, 0, None, closed="neither"), None],
        "abstain": [Interval(Real, 0, 1, closed="both")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "storage": [str, Path, None],
        "storage_cache": [Interval(Integral, 0, None, closed="left")],
        "device": [str],
        "n_jobs": [Integral, None],
        "cluster": [str, None],
        "verbose": ["verbose"],
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
        null_scores: Literal["auto", "shares", "means", "linear"] = "auto",
        prototypes: bool | Literal["auto"] = "auto",
        label_noise: Any = None,
        prior: float | None = None,
        decay: float | None = None,
        abstain: float = 0.0,
        max_iter: int = 200,
        learning_rate: float = 0.003,
        storage: str | Path | None = None,
        storage_cache: int = 2**30,
        device: str = "auto",
        n_jobs: int | None = None,
        cluster: str | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric
        self.index = index
        self.calibration = calibration
        self.null_scores = null_scores
        self.prototypes = prototypes
        self.label_noise = label_noise
        self.prior = prior
        self.decay = decay
        self.abstain = abstain
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.storage = storage
        self.storage_cache = storage_cache
        self.device = device
        self.n_jobs = n_jobs
        self.cluster = cluster
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, held_out: tuple[Any, Any] | None = None) -> Self:
        """Store the rows as the memory, and fit and calibrate the head.

        With `storage` they are written to a new table, block by block, and X may also be the path of a `.npy` file (y
        too), the address of a Parquet file or a Lance table (y is then the name of the column of labels), an iterable
        of pairs of blocks (X, y) without y, or None for the rows that are in the table, with a column `label`. The head
        is fitted on 10,000 rows, or a fifth of fewer, held out together. Until `update_statistics` the neighbour
        statistics of other rows do not know of them, where they are up to 1 % of all. `sample_weight`, `label_noise`
        and a linear `null_scores` are not available.

        Args:
            X: (N, D) real numbers.
            y: (N,) labels of any kind.
            sample_weight: (N,) weight of each row as a neighbour; rows of weight 0 are left out.
            held_out: (X, y) to fit the head on instead of folds of X. Needed if X are embeddings of an encoder that was
                trained on these rows and labels, since their neighbourhoods are purer than those of new rows. They do
                not enter the memory; `partial_fit` adds them. A `Pipeline` does not transform them. With `label_noise`
                their labels must be as often wrong as those of X. Rows identical to
                rows of X, unless most rows of X are duplicates, raise a `UserWarning` with their number, and are left
                out of `usual_distances_` if others remain.

        Raises:
            ValueError: a single class, values that are not finite, or an invalid parameter. After an error or an
                interruption the classifier is unchanged.
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
        one = "auto" in (self.null_scores, self.prototypes)
        require(one, f"prototypes: {self.prototypes} with null_scores {self.null_scores}; give one of them")
        learned = self.prior is None or self.null_scores != "linear"
        require(learned, "prior: is learned with null_scores linear; leave it None")
        if self.label_noise is not None:
            require(self.weights == "attention", f"label_noise: needs weights attention, not {self.weights}")
            fitting = "label_noise: vector calibration needs right labels; take temperature or None"
            require(self.calibration != "vector", fitting)
        device = resolve_device(self.device)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with self._threads():
            if self.storage is None:
                memory, spaces, sims = self._in_memory(X, y, sample_weight, held_out, seed)
                self._fit_head(memory, spaces, sims, seed, device, held_out)
            else:
                self._fit_table(X, y, sample_weight, held_out, seed, device)
        return self

    def _in_memory(
        self, X: Any, y: Any, sample_weight: Any, held_out: tuple[Any, Any] | None, seed: int
    ) -> tuple[Memory, list[EmbeddingSpace], np.ndarray]:
        """Memory in arrays, spaces to fit the head in, and similarities of held-out rows to their nearest."""
        memory = self._build_memory(X, y, sample_weight, 1 if held_out else 3)
        z, labels, k = memory.bank.z, memory.y, int(self.n_neighbors)
        first = first_identical(z)
        self.n_duplicates_ = int((first != np.arange(len(first))).sum())
        self.n_conflicting_duplicates_ = int((labels != labels[first]).sum())
        if held_out is None:
            parts = fold_parts(labels, seed, first=split_groups(first, z))
            spaces = [held_out_space(memory, k, part) for part in parts]
            return memory, spaces, nearest_sims(spaces)
        queries, y_held = self._held_out_rows(held_out)
        spaces = [query_space(memory, k, queries, y_held, seed)]
        sims = nearest_sims(spaces)
        if not mostly_duplicates(first, z):
            sims = without_copies(sims, first_identical(np.concatenate([z, queries]))[len(z) :] < len(z))
        return memory, spaces, sims

    def _build_memory(self, X: Any, y: Any, sample_weight: Any, least: int) -> Memory:
        """Memory in arrays of at least so many rows, with scaling and classes fitted to them."""
        X, y = self._validated_labelled(X, y, 2)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if not weight.all():
            X, y, weight = (array[weight > 0] for array in (X, y, weight))
        self.classes_, labels = np.unique(y, return_inverse=True)
        require(len(self.classes_) > 1, "y: a single class; a classifier needs two classes or more")
        few = f"n_samples = {len(X)}: at least three are needed to hold some out; add rows or give held_out"
        require(len(X) >= least, few)
        self._origin, self._unit = fit_scaling(X, self.metric)
        self._mean_weight = float(weight.mean())
        return Memory.build(self._vectors(X), labels, self._relative(weight), len(self.classes_), kind=self.index)

    def _fit_table(
        self, X: Any, y: Any, sample_weight: Any, held_out: tuple[Any, Any] | None, seed: int, device: str
    ) -> None:
        """`fit` with a memory in a table, which is deleted after an error unless it was there before."""
        from attnknn.classifier.table_memory import TableMemory, probes_of

        plain = sample_weight is None and self.label_noise is None and self.decay is None
        require(plain, "storage: takes no sample_weight, label_noise or decay")
        require(self.index in ("auto", "flat"), f"storage: takes no index {self.index}; give auto or flat")
        require(X is not None or y is None, "y: labels, but no X; leave y None, too, for the rows of the table")
        require(self.null_scores != "linear", "null_scores: linear needs all rows in memory; leave storage None")

        def vectors() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            reset = True
            for rows, labels in labelled_blocks(X, y):
                if not _num_samples(rows):
                    continue
                rows, labels = self._validated_labelled(rows, labels, 1, reset=reset)
                reset = False
                refuse_dwarfing(rows)
                yield to_vectors(rows, np.zeros(rows.shape[1]), 1.0, self.metric), labels

        uri, self._mean_weight = str(self.storage), 1.0
        options = {"cache_bytes": int(self.storage_cache), "probes": probes_of(self.index)}
        if X is None:
            require(self.metric == "l2", f"{uri}: metric cosine scales rows; give them as X, or take l2")
            memory = TableMemory.open(uri, **options)
            metric = memory.bank.metric
            require(metric == "l2", f"{uri}: a table of metric {metric}; write its rows anew by giving them as X")
            self.n_features_in_ = memory.bank.dimensions
        else:
            memory = TableMemory.write(uri, vectors(), **options)
        try:
            few = f"{uri}: {len(memory)} rows; at least four are needed to hold some out; add rows or give held_out"
            require(len(memory) > 3 or held_out is not None, few)
            self.classes_ = memory.labels
            self._origin, self._unit = np.zeros(memory.bank.dimensions), 1.0
            ids, k = None, int(self.n_neighbors)
            if held_out is None:
                ids = sample_rows(memory, seed)
                rows = memory.bank.rows_of(ids, ["vector", "label"])
                queries, y_held = rows["vector"], memory.numbers(rows["label"])
            else:
                queries, y_held = self._held_out_rows(held_out)
            memory.update_statistics(device, () if ids is None else ids, self.cluster)
            space, sims = table_space(memory, k, queries, y_held, seed, ids)
            if held_out is not None and (sims == 0).mean() <= 0.5:
                sims = without_copies(sims, sims == 0)
            self._fit_head(memory, [space], sims, seed, device, held_out)
            if ids is not None and len(ids) > _FEW_HIDDEN * len(memory):
                memory.update_statistics(device, cluster=self.cluster)
        except BaseException:
            if X is not None:
                memory.bank.drop()
            raise

    def _fit_head(
        self,
        memory: BaseMemory,
        spaces: list[EmbeddingSpace],
        sims: np.ndarray,
        seed: int,
        device: str,
        held_out: tuple[Any, Any] | None,
    ) -> None:
        """Fit and calibrate the head; `sims` (M,) are of held-out rows to their nearest in the memory."""
        self.memory_, self.new_classes_, self._novelty = memory, self.classes_[:0], None
        self.usual_distances_ = np.sort(self._distances(sims))
        gpus = [] if device == "cpu" else [device]
        with torch.random.fork_rng(devices=gpus):  # keeps the caller's random state
            fitted = fit_and_calibrate(spaces, self.get_params(), seed, device, held_out is not None)
        self.head_, self.n_iter_, self.calibration_, votes, y_val, memory.strength, noise, fitted_on = fitted
        self.transition_ = None if noise is None else noise.transition
        if noise is not None:
            rows = cast(Memory, memory)
            everything = held_out_space(rows, int(self.n_neighbors), np.full(len(rows), BANK, dtype=np.int8))
            rows.correct(correct_labels(everything, noise, seed, device), noise.transition)
        if memory.strength is not None:
            memory.linear_classifier()
        # Laplace's rule of succession bounds the confidence that n rows support.
        self._smoothing = max(1 / (len(y_val) + 1), 0 if noise is None else DOUBT)
        calibrated = self._predictor().calibrated
        if noise is not None:
            y_val = draw_labels(calibrated(votes), y_val, noise.transition, seed)
        scores, confidence = [], []
        for b in blocks(*votes.shape):
            probs = calibrated(votes[b])
            scores.append(true_class_scores(probs, y_val[b]))
            confidence.append(probs.max(1))
        self._held_out = np.concatenate(scores)
        options = int(self.n_neighbors), seed, memory.unit, len(memory)
        self._novelty = fit_novelty(fitted_on, self.head_, calibrated, np.concatenate(confidence), *options)

    def _held_out_rows(self, held_out: Any) -> tuple[np.ndarray, np.ndarray]:
        """Vectors and class numbers of the rows given as `held_out`."""
        is_pair = isinstance(held_out, tuple | list) and len(held_out) == 2
        require(is_pair, "held_out: give a pair (X, y) of rows and their labels")
        X, y = self._validated(*held_out, reset=False, ensure_min_samples=2)
        return self._vectors(X), self._encode_labels("held_out", y)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated_labelled(self, X: Any, y: Any, rows: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = self._validated(X, y, ensure_min_samples=rows, **options)
        with np.errstate(invalid="ignore"):  # of the largest numbers, on their way to an error
            check_classification_targets(y)
        return X, y

    def _validated(self, *arrays: Any, **options: Any) -> Any:
        """Call scikit-learn's `validate_data`, without NumPy's warnings of values that it then refuses."""
        require(
            not isinstance(arrays[0], str | Path), f"X: the path {arrays[0]}; only `fit` with `storage` reads files"
        )
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                X = as_dense(arrays[0])
                checked = validate_data(self, X, *arrays[1:], dtype=[np.float64, np.float32], **options)
            except OverflowError as error:  # of Python's whole numbers
                raise ValueError(f"X: {error}; give numbers below {LARGEST:g}") from None
            except ValueError as error:
                if "could not convert string" not in str(error):
                    raise
                remedy = "encode texts and categories first: make_pipeline(TableEncoder(), AttnKNNClassifier())"
                raise ValueError(f"X: {error}; {remedy}") from None
        missing = len(arrays) > 1 and any(label is None for label in checked[1])
        require(not missing, "y: None is no label; give the row a label, or leave it out")
        return checked

    def _encode_labels(self, name: str, y: np.ndarray) -> np.ndarray:
        """Class numbers of labels."""
        unknown = np.setdiff1d(y, self.classes_)
        classes, new = (", ".join(map(str, labels[:10])) for labels in (self.classes_, unknown))
        require(len(unknown) == 0, f"{name}: unknown labels {new}; the classes of this model are {classes}; fit again")
        return np.searchsorted(self.classes_, y)

    def _predictor(self, device: str = "") -> Predictor:
        device, k = device or resolve_device(self.device), int(self.n_neighbors)
        fitted = self.memory_, self.head_, *self.calibration_, self._smoothing
        return Predictor(*fitted, k, device, self._novelty)

    def _relative(self, weight: np.ndarray) -> np.ndarray:
        """Weights divided by their mean in `fit`, above 0 in float32."""
        relative = weight / self._mean_weight
        too_large = f"sample_weight: a weight is over {LARGEST:g} times the mean in fit; give smaller ones"
        require(float(relative.max()) <= LARGEST, too_large)
        return np.maximum(relative, np.finfo(np.float32).tiny)

    def _vectors(self, X: np.ndarray) -> np.ndarray:
        return to_vectors(X, self._origin, self._unit, self.metric)

    def _queries(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._vectors(cast(np.ndarray, self._validated(X, reset=False)))

    def _reading(self) -> AbstractContextManager[None]:
        """Hold the memory's lock, so that no other thread changes it meanwhile."""
        check_is_fitted(self)
        return self.memory_.lock.reading()

    def _threads(self) -> AbstractContextManager[None]:
        from joblib import cpu_count, effective_n_jobs

        return limit_threads(None if self.n_jobs is None else min(effective_n_jobs(self.n_jobs), cpu_count()))

    @property
    def null_scores_(self) -> str:
        """What scores the null neighbours."""
        parts = getattr(self.head_, "config", {})
        return next((name for name, own in NULL_SCORES.items() if own and own.items() <= parts.items()), "shares")

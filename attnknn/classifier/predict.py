"""Probabilities, labels, prediction sets and novelty of a classifier."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from numbers import Real
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils.validation import check_is_fitted

from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.classifier.novelty import Novelty
from attnknn.classifier.persistence import AnyHead
from attnknn.classifier.predictor import Predictor
from attnknn.core.errors import require
from attnknn.evaluation.conformal import p_values, true_class_scores
from attnknn.evaluation.selective import log_complement

FAR = 99.9  # distance percentile from which a row is far from the memory
_FOLDS, _ROWS = 10, 200  # of a new class, which calibrate its prediction sets
_OLD_ROWS = 500  # of the other classes together, once there is a new one


class PredictMixin:
    """Mixin with the methods that predict."""

    n_neighbors: int
    abstain: float
    classes_: np.ndarray
    new_classes_: np.ndarray
    memory_: BaseMemory
    head_: AnyHead
    _held_out: np.ndarray
    _novelty: Novelty | None
    _queries: Callable[[Any], np.ndarray]
    _percentiles: Callable[[np.ndarray], np.ndarray]
    _predictor: Callable[..., Predictor]
    _reading: Callable[[], AbstractContextManager[None]]
    _threads: Callable[[], AbstractContextManager[None]]
    _own: tuple[Any, Any] = (None, None)  # what `_own_scores` depends on, and its result

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (B, C), float64, columns in the order of `classes_`; rows sum to 1."""
        return self._predict(X)[0]

    def distance_percentiles(self, X: Any) -> np.ndarray:
        """Percentage (B,) of held-out rows that were nearer to their nearest neighbour than each row is to its own.

        A row at `FAR` = 99.9 or above is unlike the memory, whatever its confidence. NaN for models that were saved
        without the distances. As the calibration, they do not change as rows are added or forgotten. With fewer than
        1,000 held-out rows the 99.9th percentile is their largest distance, which a few percent of ordinary rows exceed
        if the model is small.
        """
        return self.predict_with_novelty(X)[1]

    def novelty(self, X: Any) -> np.ndarray:
        """Conformal p value (B,) of each row: the share of held-out rows at least as unlike the memory as it is.

        Rows like those of `fit` have p values spread evenly over 0 … 1; those of unknown classes, or of other data,
        small ones. See `classifier.novelty` for the score, which is fitted without examples of anything new. It is not
        calibrated again as rows are added or forgotten: with many times the rows distances are smaller and p values
        higher, with few left lower; then fit again. Rows of an added class are no longer new. p is at least 1/(n + 1)
        of n held-out rows; NaN for models that were saved by earlier versions. With `metric` cosine the length of a row
        does not count. It is approximate in tables of a few categories and with many copies of rows.
        """
        return self.predict_with_novelty(X)[2]

    def predict_with_novelty(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`predict_proba`, `distance_percentiles` and `novelty` by one search."""
        probabilities, nearest, novelty, _ = self._predict(X)
        return probabilities, self._percentiles(nearest), novelty

    def _predict(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Probabilities, similarities of the nearest rows, novelty, and `classes_`, which another thread may change."""
        z = self._queries(X)
        with self._reading(), self._threads():
            return *self._predictor().predict(z), self.classes_

    def predict(self, X: Any, reject: float | None = None) -> np.ndarray:
        """The most probable label of each row (B,).

        Args:
            reject: share of rows like those of `fit` that may be rejected: rows whose `novelty` is at most that are
                None, in an array of objects. None rejects no row.

        Raises:
            ValueError: `reject` is below what the number of held-out rows allows, or the model has no `novelty`.
        """
        check_is_fitted(self)
        if reject is not None:
            self.check_reject(reject)
        probabilities, _, novelty, classes = self._predict(X)
        labels = classes[probabilities.argmax(1)]
        if reject is None:
            return labels
        labels = labels.astype(object)
        labels[novelty <= reject] = None
        return labels

    def check_reject(self, reject: float) -> None:
        """InputError unless rows can be rejected at this level."""
        require(isinstance(reject, Real) and 0 < reject < 1, f"reject: {reject}; give a share above 0 and below 1")
        require(self._novelty is not None, "reject: the model was saved by an earlier version; fit again")
        least = 1 / (len(cast(Novelty, self._novelty).scores) + 1)
        require(reject >= least, f"reject: {reject}; the held-out rows allow {least:.2g} at least")

    def abstains(self, X: Any) -> np.ndarray:
        """Whether the confidence of each prediction (B,) is below `abstain`."""
        return self.predict_proba(X).max(1) < self.abstain

    def predict_set(self, X: Any, alpha: float = 0.1) -> np.ndarray:
        """Split conformal prediction sets, bool (B, C), with coverage of the true class of at least 1 − alpha.

        The coverage is marginal over exchangeable rows, and approximate, since the calibration rows also stopped the
        training. The most probable class is always included, and every class for rows far from the memory (see
        `distance_percentiles`), whose probabilities the calibration knows nothing of. It is not calibrated again as
        rows are added or forgotten. Each of `new_classes_` is calibrated by its own rows, predicted without some others
        of its class: its coverage is 1 − alpha, and with fewer than 1/alpha − 1 rows it is in all sets. Then the other
        classes are also calibrated by rows of the memory, with coverage of 1 − alpha over all of them; a class that a
        new one overlaps has less.
        """
        z = self._queries(X)
        with self._reading(), self._threads():
            probabilities, nearest, _ = self._predictor().predict(z)
            return self._sets(probabilities, alpha, self._percentiles(nearest))

    def sets_from_proba(
        self, probabilities: np.ndarray, alpha: float = 0.1, percentiles: np.ndarray | None = None
    ) -> np.ndarray:
        """Prediction sets of `predict_set` from probabilities (B, C) and distance percentiles (B,)."""
        with self._reading(), self._threads():
            return self._sets(probabilities, alpha, percentiles)

    def _sets(self, probabilities: np.ndarray, alpha: float, percentiles: np.ndarray | None) -> np.ndarray:
        require(0 < alpha < 1, f"alpha: {alpha}; give a share of misses above 0 and below 1")
        top = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
        sets = top | (self._set_p_values(log_complement(probabilities)) > alpha)
        return sets if percentiles is None else sets | (percentiles >= FAR)[:, None]

    def _set_p_values(self, scores: Float[np.ndarray, "B C"]) -> Float[np.ndarray, "B C"]:
        """p value of each class by the conformity scores of held-out rows; with new classes also of memory rows.

        A new class is calibrated by its own rows. It takes probability from others, so these have the larger p of the
        held-out rows, which know nothing of it, and of rows of the memory. The caller holds the lock.
        """
        p, memory = p_values(self._held_out, scores), self.memory_
        if not len(self.new_classes_):
            return p
        key = len(memory), memory.next_id, len(self.classes_), self.n_neighbors, id(self.head_)
        if self._own[0] != key:
            self._own = key, self._own_scores()
        by_class, others = self._own[1]
        p = np.maximum(p, p_values(others, scores)) if len(others) else p
        for number, own in by_class.items():
            p[:, number] = p_values(own, scores[:, number])
        return p

    def _own_scores(self) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """Scores of rows of each new class, by its number, and of rows of the others; none of a table."""
        numbers = np.searchsorted(self.classes_, self.new_classes_).tolist()
        if not isinstance(self.memory_, Memory):
            return {number: np.empty(0) for number in numbers}, np.empty(0)
        y, rng = self.memory_.y, np.random.default_rng(0)
        by_class = {
            number: self._score_rows(rng.permutation(np.flatnonzero(y == number))[:_ROWS]) for number in numbers
        }
        return by_class, self._score_rows(rng.permutation(np.flatnonzero(~np.isin(y, numbers)))[:_OLD_ROWS])

    def _score_rows(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
        """Conformity scores of rows of the memory, each predicted without itself; none of a single one."""
        if len(rows) < 2:
            return np.empty(0)
        memory, predictor, scores = cast(Memory, self.memory_), self._predictor("cpu"), []
        for fold in np.array_split(rows, min(len(rows), _FOLDS)):
            ids, z = memory.ids[fold].tolist(), memory.vectors(fold)
            votes = np.concatenate([votes for *_, votes in predictor.batches(z, ids)])
            scores.append(true_class_scores(predictor.calibrated(votes, ids), memory.y[fold]))
        return np.concatenate(scores)

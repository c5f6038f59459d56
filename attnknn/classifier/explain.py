"""Neighbours, explanations and counterfactuals of a classifier."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, fields, replace
from typing import Any, Literal

import numpy as np

from attnknn.classifier.explanation import NULL_NAMES, Counterfactual, Explanation
from attnknn.classifier.nearest import BaseMemory
from attnknn.classifier.predictor import Predictor
from attnknn.core.device import resolve_device
from attnknn.core.errors import require


class ExplainMixin:
    """Mixin with `kneighbors`, `explain`, `explain_rows` and `counterfactual`."""

    n_neighbors: int
    device: str
    classes_: np.ndarray
    memory_: BaseMemory
    usual_distances_: np.ndarray
    null_scores_: str
    _unit: float
    _queries: Callable[[Any], np.ndarray]
    _predictor: Callable[[], Predictor]
    _reading: Callable[[], AbstractContextManager[None]]
    _threads: Callable[[], AbstractContextManager[None]]

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True, return_weights: bool = False
    ) -> Any:
        """Distances and ids (B, K) of the nearest rows of the memory, nearest first.

        Ids are positions in the X of `fit`; `partial_fit` continues them.

        Args:
            X: (B, D); None for every row of the memory, excluding itself, in the order of ids.
            n_neighbors: None for the parameter of that name.
            return_weights: return the attention weights too, computed with the parameter `n_neighbors`.
        """
        with self._reading(), self._threads():
            largest = len(self.memory_) - (X is None)
            k = min(self.n_neighbors, largest) if n_neighbors is None else n_neighbors
            require(1 <= k <= largest, f"n_neighbors: {k}; the memory allows 1 … {largest}")
            require(not return_weights or X is not None, "return_weights: give X")
            exclude = self.memory_.all_ids() if X is None else None
            z = self._queries(X) if exclude is None else self.memory_.vectors_of(exclude)
            nearest = self.memory_.nearest(z, k, exclude, resolve_device(self.device))
            result: list[np.ndarray] = [self._distances(nearest.sims)] if return_distance else []
            result.append(nearest.ids)
            if return_weights:
                weights = np.concatenate([weights for _, weights, _ in self._predictor().batches(z)])
                result.append(np.pad(weights, ((0, 0), (0, max(0, k - weights.shape[1]))))[:, :k])
        return tuple(result) if len(result) > 1 else result[0]

    def _distances(self, sims: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(-sims.astype(np.float64), 0)) * self._unit

    def _percentiles(self, nearest_sims: np.ndarray) -> np.ndarray:
        usual, distances = self.usual_distances_, self._distances(nearest_sims)
        if not len(usual):
            return np.full(len(distances), np.nan)
        return 100 * np.searchsorted(usual, distances) / len(usual)

    def explain(self, X: Any) -> Explanation:
        """Neighbours, weights and votes behind each prediction; see `Explanation`."""
        z = self._queries(X)
        with self._reading():
            return self._explain(z)

    def explain_rows(self, ids: Any) -> Explanation:
        """Explain leave-one-out predictions for rows of the memory, by their ids.

        Raises:
            ValueError: an id is not in the memory.
        """
        with self._reading():
            parts = [self._explain(row[None], [row_id]) for row_id, row in self._memory_rows(ids)]
        names = [f.name for f in fields(Explanation) if f.default is MISSING]
        return replace(parts[0], **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def _memory_rows(self, ids: Any) -> list[tuple[int, np.ndarray]]:
        ids = check_row_ids(ids)
        require(len(ids) > 0, "ids: empty; give one or more")
        return list(zip(ids.tolist(), self.memory_.vectors_of(ids), strict=True))

    def _explain(self, z: np.ndarray, without: Sequence[int] = ()) -> Explanation:
        with self._threads():
            result = self._predictor().explain(z, without)
        return replace(
            result,
            labels=self.classes_[result.labels],
            given_labels=self.classes_[result.given_labels],
            predictions=self.classes_[result.predictions],
            distances=self._distances(result.distances),
            distance_percentiles=self._percentiles(result.distance_percentiles),
            null_scores=NULL_NAMES[self.null_scores_],
        )

    def counterfactual(
        self, X: Any = None, how: Literal["forget", "relabel"] = "forget", most: int = 50, *, ids: Any = None
    ) -> list[Counterfactual]:
        """Find rows of the memory whose removal or relabelling changes each prediction.

        Greedy: each step changes the neighbour with the largest weight for the prediction, and predicts again.
        `forget` removes it, and the next nearest row takes its place; `relabel` assigns the second most probable
        class. Probabilities are those of `predict_proba` after the change; the memory itself is not changed.

        Args:
            X: (B, D).
            how: `forget` or `relabel`.
            most: maximum number of rows.
            ids: rows of the memory instead of X, each left out of its own neighbours.
        """
        require(how in ("forget", "relabel"), f"how: {how}; allowed are forget and relabel")
        require((X is None) != (ids is None), "X and ids: give one of them")
        with self._reading(), self._threads():
            predictor, classes = self._predictor(), self.classes_
            if ids is None:
                queries = [(row, []) for row in self._queries(X)]
            else:
                queries = [(row, [row_id]) for row_id, row in self._memory_rows(ids)]
            results = [predictor.counterfactual(row[None], how, most, exclude) for row, exclude in queries]
        return [replace(r, label=classes[r.label], prediction=classes[r.prediction]) for r in results]


def check_row_ids(ids: Any) -> np.ndarray:
    """Row ids as int64 (M,); InputError if they are not integers."""
    ids = np.atleast_1d(ids)
    require(ids.dtype.kind in "iu" or not ids.size, f"ids: of type {ids.dtype}; give integers of 64 bits")
    return ids.astype(np.int64).ravel()

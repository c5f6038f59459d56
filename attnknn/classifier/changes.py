"""Add, forget and relabel rows of a fitted classifier."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from numbers import Integral
from typing import Any, Literal, Self, cast

import numpy as np
from jaxtyping import Int
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from attnknn.classifier.classes import all_classes, by_class, sources, transition_by_class
from attnknn.classifier.explain import check_row_ids
from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.classifier.persistence import AnyHead, head_from_arrays, head_to_arrays
from attnknn.classifier.reduction import representative_rows
from attnknn.core.device import resolve_device
from attnknn.core.errors import require

# Weights of a head with an entry for each class.
_BY_CLASS = ("label_scale", "label_bias", "prototype_bias", "prototype_move", "linear_bias")


def head_by_class(head: AnyHead, source: Int[np.ndarray, " C"]) -> AnyHead:
    """Head of the classes in their new order."""
    config, arrays = head_to_arrays(head)
    if not arrays:
        return head
    arrays |= {name: by_class(arrays[name], source) for name in _BY_CLASS if name in arrays}
    return head_from_arrays({**config, "n_classes": len(source)}, arrays)


class ChangeMixin:
    """Mixin with `partial_fit`, `forget`, `keep`, `relabel` and `update_statistics`."""

    cluster: str | None
    decay: float | None
    device: str
    classes_: np.ndarray
    new_classes_: np.ndarray
    memory_: BaseMemory
    head_: AnyHead
    calibration_: tuple[np.ndarray, np.ndarray]
    transition_: np.ndarray | None
    fit: Callable[..., Self]
    _validate_params: Callable[[], None]
    _validated: Callable[..., Any]
    _vectors: Callable[[np.ndarray], np.ndarray]
    _relative: Callable[[np.ndarray], np.ndarray]
    _threads: Callable[[], AbstractContextManager[None]]
    _added_ids: np.ndarray  # of the rows of the last `partial_fit`

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to the memory without refitting the head. The first call is `fit`.

        Labels may be new: `classes_` then grows, and the columns of `predict_proba` with it; see `new_classes_`. With
        `null_scores_` linear the logistic regression is fitted anew at the next prediction, on all rows. Labels of
        added rows are taken as right, with `label_noise` too.

        Args:
            classes: (C,) possible labels, for the first call: those without a row are in `classes_` too. Later calls
                must give None or all of `classes_`.
            sample_weight: as in `fit`, in its units; or 'balanced': each class in y then weighs as much as the mean of
                the others. For new classes of few rows that will be asked for as often as the others; not with
                `storage`.

        Raises:
            ValueError: labels of another type than those of `fit`, or balanced weights without another class.
        """
        first = "sample_weight: 'balanced' balances classes that are added; give numbers to the first call"
        require(hasattr(self, "memory_") or not isinstance(sample_weight, str), first)
        self._validate_params()
        classes = None if classes is None else np.asarray(classes)
        require(classes is None or classes.ndim == 1, "classes: give one label for each, in a list or array (C,)")
        if hasattr(self, "memory_"):
            same = classes is None or np.array_equal(np.unique(classes), self.classes_)
            require(same, "classes: others than classes_; declare them in the first call, or leave it out")
        else:
            if classes is not None:
                unknown = np.setdiff1d(y, classes)
                require(len(unknown) == 0, f"y: labels {', '.join(map(str, unknown))} are not in classes")
                classes = all_classes(np.unique(y), np.asarray(classes))
            self.fit(X, y, sample_weight)
            if classes is not None:
                self._change(classes)
            return self
        X, y = self._validated(X, y, reset=False)
        balanced = isinstance(sample_weight, str)
        require(
            not balanced or sample_weight == "balanced", f"sample_weight: {sample_weight!r}; give 'balanced' or numbers"
        )
        weight = _check_sample_weight(None if balanced else sample_weight, X, ensure_non_negative=True)
        X, y, weight = (array[weight > 0] for array in (X, y, weight))
        if len(X):
            weight, fade = weight * self._faded(np.arange(len(X) - 1, -1, -1)), float(self._faded(len(X)))
            z, weight = self._vectors(X), self._relative(weight)
            with self.memory_.lock.writing(), self._threads():
                labels = all_classes(self.classes_, y)
                numbers = np.searchsorted(labels, y)
                if balanced:
                    self._check_balance(y)

                def change(memory: BaseMemory) -> Int[np.ndarray, " M"]:
                    ids = memory.add(z, numbers, weight, fade)
                    if balanced:
                        cast(Memory, memory).balance(ids)
                    return ids

                self._added_ids = self._change(labels, change)
        return self

    def _check_balance(self, y: np.ndarray) -> None:
        """InputError unless 'balanced' weights of rows with these labels can be computed."""
        require(
            isinstance(self.memory_, Memory), "sample_weight: balanced needs all rows in memory; leave storage None"
        )
        require(self.decay is None, "sample_weight: balanced does not go with decay; give weights")
        others = np.setdiff1d(self._present_classes(), y)
        require(
            len(others) > 0, "sample_weight: balanced, but rows of all classes are added; give weights, or leave it out"
        )

    def _faded(self, age: Any) -> Any:
        """Factor of the weight of a row after so many later ones."""
        return 1.0 if self.decay is None else np.exp2(-age / float(self.decay))

    def _change(self, classes: np.ndarray, change: Callable[[BaseMemory], Any] = lambda memory: None) -> Any:
        """Let the memory and the fitted arrays have these classes, and change the memory; nothing after an error."""
        memory, source = self.memory_, sources(self.classes_, classes)
        if len(classes) == len(self.classes_):
            return change(memory)
        values = {
            "head_": head_by_class(self.head_, source),
            "calibration_": tuple(by_class(array, source) for array in self.calibration_),
            "transition_": transition_by_class(self.transition_, source),
            "new_classes_": np.intersect1d(np.union1d(self.new_classes_, classes[source < 0]), classes),
            "classes_": classes,
        }
        result = memory.with_classes(classes, source)
        changed = change(result)
        vars(memory).update(vars(result))
        vars(self).update(values)
        return changed

    def update_statistics(self) -> Self:
        """Compute the neighbour statistics of a table (see `storage`) anew, so that they know of rows added since.

        Also takes the newest version of the table, with rows that another model added or forgot, or this one before it
        was killed. Without `storage` neighbour statistics follow every change.
        """
        check_is_fitted(self)
        with self.memory_.lock.writing(), self._threads():
            self.memory_.update_statistics(resolve_device(self.device), cluster=self.cluster)
        return self

    def forget(self, ids: Any) -> Self:
        """Remove rows from the memory by their ids, without refitting the head.

        A class whose last row is removed is no longer in `classes_`, which keeps two.

        With `storage` all files with their vectors are written anew, and other versions of the table deleted; models
        saved earlier then take the rows that are left. Forget many rows at once. After a kill or an error midway,
        `update_statistics` and `forget([])` complete it.

        With `null_scores_` linear the logistic regression is fitted anew at the next prediction, on the rows left.

        Raises:
            ValueError: an id is not in the memory, or fewer than two rows would be left.
        """
        check_is_fitted(self)
        with self.memory_.lock.writing(), self._threads():
            self._forget(check_row_ids(ids))
        return self

    def _forget(self, ids: Int[np.ndarray, " M"]) -> None:
        present = self._present_classes()
        self.memory_.forget(ids)
        self._drop_classes(present)

    def keep(self, n_rows: int, by: Literal["kmeans", "newest"] = "kmeans") -> Self:
        """Forget all but n rows of the memory; nothing if it has no more.

        Fewer rows are less accurate, much less with fewer than a few times `n_neighbors`; calibration and `novelty`
        stay those of the memory as fitted. Compare on rows that are not in the memory.

        Args:
            n_rows: at least two and the number of classes.
            by: `kmeans` keeps in each class, in proportion to its rows, those nearest to its k-means centres. `newest`
                keeps the rows that were last added or relabelled (a class may lose all) and, if these are fewer than n,
                rows of `fit` by k-means.

        Raises:
            ValueError: too few rows, or they are in a table.
        """
        check_is_fitted(self)
        least = max(2, len(self.classes_))
        valid = isinstance(n_rows, Integral) and n_rows >= least
        require(valid, f"n_rows: {n_rows}; give a whole number, at least {least}: two, and one for each class")
        require(by in ("kmeans", "newest"), f"by: {by!r}; give 'kmeans' or 'newest'")
        require(isinstance(self.memory_, Memory), "keep: the rows are in a table; leave storage None")
        with self.memory_.lock.writing(), self._threads():
            memory = cast(Memory, self.memory_)
            if len(memory) > n_rows:
                self._forget(np.setdiff1d(memory.ids, memory.ids[self._kept_rows(memory, int(n_rows), by)]))
        return self

    def _kept_rows(self, memory: Memory, n: int, by: str) -> Int[np.ndarray, " n"]:
        """Positions of the rows that `keep` keeps."""
        rows = np.arange(len(memory))
        newest = rows[memory.ids >= memory.first_added][-n:] if by == "newest" else rows[:0]
        n, rest = n - len(newest), rows[memory.ids < memory.first_added] if by == "newest" else rows
        if not n:
            return newest
        z, y, weight = memory.vectors(rest), memory.y[rest], memory.weight[rest]
        return np.concatenate([rest[representative_rows(z, y, weight, n, 0)], newest])

    def _present_classes(self) -> np.ndarray:
        return self.classes_[self.memory_.rows_by_class() > 0]

    def _drop_classes(self, before: np.ndarray) -> None:
        """Drop classes that were present before and are not now, but for two that are left."""
        gone = np.setdiff1d(before, self._present_classes())
        kept = np.setdiff1d(self.classes_, gone)
        self._change(np.union1d(kept, gone[: max(0, 2 - len(kept))]))

    def relabel(self, ids: Any, y: Any) -> Self:
        """Give rows of the memory other labels, which may be new, without refitting the head.

        As with `partial_fit` they are taken as right. The rows have new ids, the next ones, in the order of `ids`.

        Raises:
            ValueError: an id is not in the memory, or repeated, or labels are of another type than those of `fit`.
        """
        check_is_fitted(self)
        ids, y = check_row_ids(ids), np.asarray(y)
        require(y.ndim == 1 and len(ids) == len(np.unique(ids)) == len(y), "ids: give each once, and a label for each")
        if not len(ids):
            return self
        require(isinstance(self.memory_, Memory), "relabel: the rows are in a table; forget them, and add them anew")

        def change(memory: BaseMemory) -> None:
            rows = cast(Memory, memory)
            positions = rows.require_positions(ids)
            rows.add(rows.vectors(positions), np.searchsorted(labels, y), rows.weight[positions])
            rows.forget(ids)

        with self.memory_.lock.writing(), self._threads():
            labels, present = all_classes(self.classes_, y), self._present_classes()
            self._change(labels, change)
            self._drop_classes(present)
        return self

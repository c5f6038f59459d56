"""A saved model: the classifier with its input, the examples of its memory, and test cases.

On disk it is the folder of `AttnKNNClassifier.save` with a subfolder `input`. `AttnKNNClassifier.load` reads its
classifier, and a classifier saved without `input` loads as a model of vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pandas as pd

from attnknn.app.model.answers import to_records
from attnknn.app.model.examples import Examples
from attnknn.app.model.inputs import Batch, Input, Pictures, Vectors
from attnknn.app.model.labels import parse_labels
from attnknn.app.model.saved_input import load_input, save_input
from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.classifier.explanation import Explanation
from attnknn.classifier.locking import read_consistently
from attnknn.classifier.memory import Memory
from attnknn.core.artifacts import check_array
from attnknn.core.duplicates import first_identical, mostly_duplicates
from attnknn.core.errors import InputError, require
from attnknn.core.files import load_array
from attnknn.index.validation import LARGEST

_FOLDER, _MEMORY, _CASES = "input", "memory", "cases"
DECISIONS = ("keep", "relabel", "forget")  # about a label that may be wrong
_MAX_FORGOTTEN = 10  # rows of a counterfactual by removal; if more are needed, relabelling is reported


@dataclass(frozen=True)
class Cases:
    """Labelled test rows, in neither the memory nor the rows that the head was fitted on."""

    vectors: np.ndarray  # float (M, D)
    labels: np.ndarray  # (M,)
    examples: Examples

    def take(self, rows: np.ndarray) -> Self:
        """The cases at these positions."""
        return type(self)(self.vectors[rows], self.labels[rows], self.examples.take(rows))


@dataclass
class Model:
    """A fitted classifier with its input and examples; see `fit.fit_model`.

    Attributes:
        classifier: fitted.
        input: reads files and encodes them.
        examples: readable form of the rows of the memory, in the order of their ids.
        cases: test cases, if any.
    """

    classifier: AttnKNNClassifier
    input: Input
    examples: Examples
    cases: Cases | None = None

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model, or a classifier saved alone.

        Raises:
            InputError: the folder does not hold a model, or a damaged one.
        """
        return read_consistently(folder, lambda: cls._load(folder))

    @classmethod
    def _load(cls, folder: Path) -> Self:
        classifier = AttnKNNClassifier.load(folder)
        inner, dim = folder / _FOLDER, classifier.n_features_in_
        if not inner.is_dir():
            names = tuple(map(str, getattr(classifier, "feature_names_in_", ())))
            return cls(classifier, Vectors(dim, names), Examples())
        cases = None
        if (inner / "case_vectors.npy").is_file():
            vectors, y = (load_array(inner / f"case_{name}.npy", mmap=False) for name in ("vectors", "numbers"))
            check_array("case_vectors", vectors, "float32 or float64", 2)
            check_array("case_numbers", y, "int64", 1)
            fits = vectors.shape == (len(y), dim) and bool(np.isin(y, range(len(classifier.classes_))).all())
            require(fits, f"{inner}: test cases of other dimensions or classes than the model; fit again")
            cases = Cases(vectors, classifier.classes_[y], Examples.load(inner, _CASES, len(y)))
        return cls(classifier, load_input(inner, dim), Examples.load(inner, _MEMORY, len(classifier.memory_)), cases)

    def save(self, folder: Path) -> None:
        """Write to `folder`, atomically, after reading it back."""

        def write_input(draft: Path) -> None:
            inner = draft / _FOLDER
            inner.mkdir()
            save_input(self.input, inner)
            self.examples.save(inner, _MEMORY)
            if self.cases is not None:
                np.save(inner / "case_vectors.npy", self.cases.vectors)
                np.save(inner / "case_numbers.npy", np.searchsorted(self.classifier.classes_, self.cases.labels))
                self.cases.examples.save(inner, _CASES)

        self.classifier.save(folder, write_input, self._load)

    def read_with(self, layout: dict[str, Any]) -> None:
        """Read tables with these arguments of `read_csv.row_chunks`, beside those of `fit`."""
        if layout:
            tables = not isinstance(self.input, Pictures)
            require(tables, "--separator: this model reads pictures; leave it out")
            self.input = replace(cast(Any, self.input), layout={**cast(Any, self.input).layout, **layout})

    def parse_labels(self, texts: Sequence[str], new_classes: bool = False) -> np.ndarray:
        """Labels of the classifier's type from strings; see `labels.parse_labels`."""
        return parse_labels(texts, self.classifier.classes_, new_classes)

    def add(
        self,
        batches: Sequence[Batch],
        labels: np.ndarray,
        balanced: bool = False,
        beside: Examples | None = None,
    ) -> tuple[list[int], int]:
        """Add rows to the memory, all or none; weights as in `AttnKNNClassifier.partial_fit`.

        Args:
            beside: readable form of vectors, from `Vectors.beside`.

        Returns:
            Their ids, and how many of them were in the memory already; 0 of a memory in a table.
        """
        require(bool(batches), "no rows to add")
        vectors, examples = [self._encode(batch) for batch in batches], self.input.examples(batches[0])
        for batch in batches[1:]:
            examples = examples.append(self.input.examples(batch), len(batch.names))
        examples = examples if beside is None else beside
        rows = np.concatenate(vectors)
        known = int(self.in_memory(rows).sum()) if isinstance(self.classifier.memory_, Memory) else 0
        return self.add_vectors(rows, examples, labels, balanced), known

    def add_vectors(
        self, vectors: np.ndarray, examples: Examples, labels: np.ndarray, balanced: bool = False
    ) -> list[int]:
        """Add rows by their vectors (B, D), such as test cases, and return their ids."""
        examples = self.examples.append(examples, len(labels))
        weight = "balanced" if balanced else None
        self.classifier.partial_fit(self.with_names(vectors), labels, sample_weight=weight)
        self.examples = examples
        self._drop_cases()
        return self.classifier._added_ids.tolist()

    def forget(self, ids: Sequence[int]) -> None:
        """Remove rows from the memory; raise InputError if an id is not in it, or fewer than two would be left."""
        if not isinstance(self.classifier.memory_, Memory):  # a table, which has no examples
            self.classifier.forget(list(ids))
            return
        remaining = np.delete(np.arange(len(self.memory)), self.positions(ids))
        self.classifier.forget(list(ids))
        self.examples = self.examples.take(remaining)
        self._drop_cases()

    def erase(self, ids: Sequence[int], cases: np.ndarray | None = None) -> int:
        """`forget` with test cases that are identical to one of the rows, and those of `cases`, bool (M,).

        Returns:
            The number of these test cases.
        """
        if self.cases is None or not isinstance(self.classifier.memory_, Memory):
            self.forget(ids)
            return 0
        before, own = self.cases_in_memory(), self.cases
        self.forget(ids)
        self.cases = own
        gone = before & ~self.cases_in_memory() | ~np.isin(own.labels, self.classifier.classes_)
        self._take_cases(~gone if cases is None else ~(gone | cases))
        return len(own.labels) - (0 if self.cases is None else len(self.cases.labels))

    def keep(self, n_rows: int, by: str) -> None:
        """Forget all but n rows of the memory; see `AttnKNNClassifier.keep`."""
        before = self.memory.ids
        self.classifier.keep(n_rows, by)  # type: ignore[arg-type]
        self.examples = self.examples.take(np.flatnonzero(np.isin(before, self.memory.ids)))
        self._drop_cases()

    def accuracy(self, cases: Cases) -> float:
        """Accuracy on test cases."""
        return float((self.classifier.predict(self.with_names(cases.vectors)) == cases.labels).mean())

    def relabel(self, ids: Sequence[int], labels: np.ndarray) -> None:
        """Give rows of the memory other labels, and new ids, see `AttnKNNClassifier.relabel`."""
        positions = self.positions(ids)
        self.classifier.relabel(list(ids), labels)
        remaining = np.delete(np.arange(len(self.memory)), positions)
        self.examples = self.examples.take(np.concatenate([remaining, positions]))
        self._drop_cases()

    def _drop_cases(self) -> None:
        """Drop test cases of classes that the classifier no longer has."""
        if self.cases is not None:
            self._take_cases(np.isin(self.cases.labels, self.classifier.classes_))

    def _take_cases(self, kept: np.ndarray) -> None:
        """Keep test cases, bool (M,)."""
        if self.cases is not None and not kept.all():
            self.cases = self.cases.take(np.flatnonzero(kept)) if kept.any() else None

    def apply_decisions(self, decisions: Sequence[tuple[int, str, str]]) -> dict[str, int]:
        """Keep, relabel or forget rows of the memory, all or none.

        Args:
            decisions: id, one of `DECISIONS`, and the label of those to relabel.

        Returns:
            The number of each decision.
        """
        rows = {name: [row_id for row_id, own, _ in decisions if own == name] for name in DECISIONS}
        self.positions([row_id for row_id, _, _ in decisions])
        labels = self.parse_labels([label for _, own, label in decisions if own == "relabel"])
        kept = np.delete(self.memory.given_y, self.positions(rows["forget"] + rows["relabel"]))
        left = np.union1d(self.classifier.classes_[kept], labels)
        require(
            len(left) != 1, f"decisions: all rows left would be of class {', '.join(map(str, left))}; keep two classes"
        )
        if rows["relabel"]:  # first, so that a class keeps its test cases if others are relabelled into it
            self.relabel(rows["relabel"], labels)
        if rows["forget"]:
            self.forget(rows["forget"])
        return {name: len(ids) for name, ids in rows.items()}

    @property
    def memory(self) -> Memory:
        """The training rows; InputError if they are in a table."""
        memory = self.classifier.memory_
        require(isinstance(memory, Memory), f"{self.classifier.storage}: its rows are in a table; use it from Python")
        return cast(Memory, memory)

    def cases_in_memory(self) -> np.ndarray:
        """Which test cases (M,) are rows of the memory too, and so not held out; empty without test cases."""
        return np.zeros(0, dtype=bool) if self.cases is None else self.in_memory(self.cases.vectors)

    def in_memory(self, vectors: np.ndarray) -> np.ndarray:
        """Which vectors (M, D) are rows of the memory, and so their own neighbours: bool (M,).

        In tables of a few categories new rows are copies too, and none counts as one.
        """
        memory = self.memory
        z = self.classifier._vectors(vectors.astype(np.float64))
        nearest = memory.vectors(memory.positions(memory.bank.search(z, 1)[0][:, 0]))
        # Embeddings of one picture differ by rounding, depending on what it was embedded with.
        same = np.abs(nearest - z).max(1) <= 1e-5 * np.abs(z).max(1)
        if same.any():
            stored = memory.vectors()
            same &= not mostly_duplicates(first_identical(stored), stored)
        return same

    def rows_of(self, ids: Sequence[int]) -> list[dict[str, str | None]]:
        """Columns of rows of the memory by id; empty without a table."""
        if self.examples.table is None:
            return [{} for _ in ids]
        return [self.examples.columns(row) for row in self.positions(ids)]

    def positions(self, ids: Sequence[int]) -> list[int]:
        """Positions of rows of the memory by id; raise InputError if one is not in it."""
        memory = self.memory
        in_range = [row_id if 0 <= row_id < memory.next_id else -1 for row_id in ids]  # larger ones overflow int64
        rows = memory.positions(np.array(in_range, dtype=np.int64)).tolist()
        missing = [str(row_id) for row_id, row in zip(ids, rows, strict=True) if row < 0]
        require(not missing, f"id {', '.join(missing[:10])}: not in the memory")
        return rows

    def encode(self, batch: Batch) -> Any:
        """Encode a batch as the classifier's input: (B, D), a data frame if it was fitted on one.

        Raises:
            InputError: a row does not fit the model, or its values are too large.
        """
        return self.with_names(self._encode(batch))

    def _encode(self, batch: Batch) -> np.ndarray:
        vectors = self.input.vectors(batch)
        for row in np.flatnonzero((np.abs(self.classifier._vectors(vectors)) > LARGEST).any(1)):
            beyond = f"{batch.names[row]}: values beyond ±{LARGEST:g} times those of the memory"
            raise InputError(f"{beyond}; leave the row out, or scale it as the others are")
        return vectors

    def with_names(self, vectors: np.ndarray) -> Any:
        """Vectors (B, D) as a data frame with `feature_names_in_`, if the classifier has them."""
        names = getattr(self.classifier, "feature_names_in_", None)
        return vectors if names is None else pd.DataFrame(vectors, columns=names)

    def answers(self, explanation: Explanation, shown: int = 8, row_id: int | None = None) -> list[dict[str, Any]]:
        """One JSON-serialisable dict a query; see `answers.to_records`."""
        return to_records(self.classifier, explanation, shown, row_id)

    def counterfactuals(self, vectors: Any = None, ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Counterfactual of each prediction as a JSON-serialisable dict.

        Up to `_MAX_FORGOTTEN` rows to forget, or else rows to relabel; see `AttnKNNClassifier.counterfactual`.
        Rows of a table are not relabelled.

        Args:
            vectors: (B, D), or None to take the rows of the memory named by `ids`.
        """
        c = self.classifier
        changes = c.counterfactual(vectors, ids=ids, how="forget", most=_MAX_FORGOTTEN)
        results = []
        for i, change in enumerate(changes):
            if not change.turned and isinstance(c.memory_, Memory):  # rows of a table cannot be relabelled
                one: dict[str, Any] = {"X": vectors[i : i + 1]} if ids is None else {"ids": ids[i : i + 1]}
                (change,) = c.counterfactual(**one, how="relabel")
            label, prediction = np.array([change.label, change.prediction], dtype=c.classes_.dtype).tolist()
            result = {"how": change.how, "ids": change.ids.tolist(), "label": label, "turned": change.turned}
            results.append({**result, "prediction": prediction, "confidence": float(change.probabilities.max())})
        return results

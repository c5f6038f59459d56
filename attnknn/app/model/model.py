"""A saved model as it is used: the classifier, its input, the looks of its memory, and test cases.

On disk it is the folder that `AttnKNNClassifier.save` writes, with a folder `input` in it; so the classifier of it can
be loaded alone, and a classifier that was saved alone is a model whose input is vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.inputs import Batch, Input, Vectors, load_input, save_input
from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.classifier.persistence import read_consistently
from attnknn.classifier.predictor import Explanation
from attnknn.core.errors import require
from attnknn.index.bank import LARGEST

_FOLDER, _MEMORY, _CASES = "input", "memory", "cases"
_FEW = 10  # neighbours whose going would change an answer, up to which that is what is told


def lock_of(folder: Path, wait: float) -> Any:
    """A lock beside a model's folder, which every process holds that changes the model; so many seconds are waited."""
    from filelock import FileLock

    return FileLock(folder.parent / f".{folder.resolve().name}.lock", timeout=wait)


@dataclass(frozen=True)
class Cases:
    """Rows that neither the memory nor what was learned knows, with their labels.

    Attributes:
        vectors: float (M, D).
        labels: (M,).
        examples: what they look like.
    """

    vectors: np.ndarray
    labels: np.ndarray
    examples: Examples

    def take(self, rows: np.ndarray) -> Self:
        """Those at some positions."""
        return type(self)(self.vectors[rows], self.labels[rows], self.examples.take(rows))


@dataclass
class Model:
    """What `load` and `teach` give.

    Attributes:
        classifier: fitted.
        input: how what people have becomes vectors.
        examples: what the rows of the memory look like, in the order of their ids.
        cases: test cases, if any.
    """

    classifier: AttnKNNClassifier
    input: Input
    examples: Examples
    cases: Cases | None = None

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model, or a classifier alone.

        Raises:
            InputError: there is none, or it is damaged.
        """
        return read_consistently(folder, lambda: cls._read(folder))

    @classmethod
    def _read(cls, folder: Path) -> Self:
        classifier = AttnKNNClassifier.load(folder)
        inner = folder / _FOLDER
        if not inner.is_dir():
            names = tuple(map(str, getattr(classifier, "feature_names_in_", ())))
            return cls(classifier, Vectors(len(classifier.memory_.bank.z[0]), names), Examples())
        cases = None
        if (inner / "case_vectors.npy").is_file():
            vectors, numbers = (
                np.load(inner / f"case_{name}.npy", allow_pickle=False) for name in ("vectors", "numbers")
            )
            cases = Cases(vectors, classifier.classes_[numbers], Examples.load(inner, _CASES, len(numbers)))
        return cls(classifier, load_input(inner), Examples.load(inner, _MEMORY, len(classifier.memory_)), cases)

    def save(self, folder: Path) -> None:
        """Write to `folder`, in one step."""

        def rest(draft: Path) -> None:
            inner = draft / _FOLDER
            inner.mkdir()
            save_input(self.input, inner)
            self.examples.save(inner, _MEMORY)
            if self.cases is not None:
                np.save(inner / "case_vectors.npy", self.cases.vectors)
                np.save(inner / "case_numbers.npy", np.searchsorted(self.classifier.classes_, self.cases.labels))
                self.cases.examples.save(inner, _CASES)

        self.classifier.save(folder, rest)

    def labels(self, texts: Sequence[str]) -> np.ndarray:
        """The classes that are written so.

        Raises:
            InputError: one is none of them.
        """
        known = {str(label): label for label in self.classifier.classes_}
        unknown = sorted({text for text in texts if text not in known})
        shown = ", ".join(list(known)[:20]) + (", …" if len(known) > 20 else "")
        require(not unknown, f"label {', '.join(unknown[:5])}: no class of this model, which knows {shown}")
        return np.array([known[text] for text in texts], dtype=self.classifier.classes_.dtype)

    def add(self, batch: Batch, labels: np.ndarray) -> list[int]:
        """Add rows to the memory; their ids."""
        return self.add_vectors(self._vectors(batch), self.input.examples(batch), labels)

    def add_vectors(self, vectors: np.ndarray, examples: Examples, labels: np.ndarray) -> list[int]:
        """Add rows whose vectors (B, D) are known, such as test cases; their ids."""
        joined = self.examples.joined(examples, len(labels))
        self.classifier.partial_fit(self.named(vectors), labels)
        self.examples = joined
        return [int(row) for row in self.classifier.memory_.ids[len(self.classifier.memory_) - len(labels) :]]

    def forget(self, ids: Sequence[int]) -> None:
        """Take rows out of the memory.

        Raises:
            InputError: an id is not there, or fewer than two rows would be left.
        """
        at = self.places(ids)
        self.classifier.forget(list(ids))
        kept = np.setdiff1d(np.arange(len(self.classifier.memory_) + len(np.unique(at))), at)
        self.examples = self.examples.take(kept)

    def rows_of(self, ids: Sequence[int]) -> list[dict[str, str | None]]:
        """The columns of rows of the memory; empty where it has none."""
        return [self.examples.row(at) for at in self.places(ids)]

    def places(self, ids: Sequence[int]) -> list[int]:
        """Positions of rows of the memory.

        Raises:
            InputError: an id is not there.
        """
        memory = self.classifier.memory_
        named = [row if 0 <= row < memory.next_id else -1 for row in ids]  # numpy has no larger ones than int64
        at = memory.positions(np.array(named, dtype=np.int64)).tolist()
        missing = [str(row) for row, place in zip(ids, at, strict=True) if place < 0]
        require(not missing, f"id {', '.join(missing[:10])}: not in the memory")
        return at

    def given(self, batch: Batch) -> Any:
        """What the classifier takes (B, D), of what was read.

        Raises:
            InputError: a row does not fit, or has too large values.
        """
        return self.named(self._vectors(batch))

    def _vectors(self, batch: Batch) -> np.ndarray:
        vectors = self.input.vectors(batch)
        far = np.flatnonzero((np.abs(vectors) > LARGEST).any(1))
        where = batch.names[far[0]] if len(far) else ""
        require(not len(far), f"{where}: values beyond ±{LARGEST:g}; leave the row out, or scale it as the others are")
        return vectors

    def named(self, vectors: np.ndarray) -> Any:
        """Vectors (B, D) with the names of their columns, where the classifier was taught names."""
        names = getattr(self.classifier, "feature_names_in_", None)
        if names is None:
            return vectors
        import pandas as pd

        return pd.DataFrame(vectors, columns=names)

    def answers(self, found: Explanation, shown: int = 8, alpha: float = 0.1) -> list[dict[str, Any]]:
        """What a person wants to know of each answer, as JSON can hold it.

        Args:
            found: by `AttnKNNClassifier.explain` or `explain_rows`.
            shown: neighbours, those that weigh most.
            alpha: of the prediction sets.
        """
        c = self.classifier
        sets = c.sets_from_proba(found.probabilities, alpha)
        plain = c.classes_.tolist()
        null = "class means" if c.weights == "attention" and c.prototypes else "class shares"
        out = []
        for i, top in enumerate(found.probabilities.argmax(1)):
            order = np.argsort(-found.weights[i], kind="stable")
            first = [int(j) for j in order[:shown] if found.ids[i, j] >= 0]
            rest = [int(j) for j in order[shown:] if found.ids[i, j] >= 0]
            neighbours = [
                {
                    "id": int(found.ids[i, j]),
                    "label": found.labels[i, j : j + 1].tolist()[0],
                    "distance": float(found.distances[i, j]),
                    "weight": float(found.weights[i, j]),
                    "share": float(found.shares[i, j]),
                }
                for j in first
            ]
            ranked = np.argsort(-found.probabilities[i], kind="stable")
            out.append(
                {
                    "prediction": plain[top],
                    "confidence": float(found.probabilities[i, top]),
                    "abstains": bool(found.probabilities[i, top] < c.abstain),
                    "set": [plain[j] for j in np.flatnonzero(sets[i])],
                    "probabilities": [{"label": plain[j], "p": float(found.probabilities[i, j])} for j in ranked],
                    "neighbours": neighbours,
                    "rest": {"count": len(rest), "weight": float(found.weights[i, rest].sum())},
                    "null": {"of": null, "weight": float(found.null[i].sum())},
                }
            )
        return out

    def changes(self, vectors: Any = None, ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """What would change each answer, as JSON can hold it: rows to forget where a few do, else labels to be others.

        Args:
            vectors: (B, D), or None and `ids` of rows of the memory; see `AttnKNNClassifier.counterfactual`.
        """
        c = self.classifier
        told = []
        asked = len(vectors) if ids is None else len(ids)
        for i in range(asked):
            one: dict[str, Any] = {"X": vectors[i : i + 1]} if ids is None else {"ids": [ids[i]]}
            (found,) = c.counterfactual(**one, how="forget", most=_FEW)
            if not found.turned:
                (found,) = c.counterfactual(**one, how="relabel")
            label, prediction = np.array([found.label, found.prediction], dtype=c.classes_.dtype).tolist()
            told.append(
                {
                    "how": found.how,
                    "ids": [int(row) for row in found.ids],
                    "label": label,
                    "turned": found.turned,
                    "prediction": prediction,
                    "confidence": float(found.probabilities.max()),
                }
            )
        return told

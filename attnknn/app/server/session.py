"""What the page asks for, of one model: answers, test cases, what would change them, and rows added and forgotten.

Every public method may be called by several threads at once.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from attnknn.app.model.inputs import Batch, Pictures
from attnknn.app.model.model import Cases, Model, lock_of
from attnknn.app.server.lock import SharedLock
from attnknn.app.server.parse import batch_of_row, batch_of_vector
from attnknn.app.server.queries import NO_CASES, Asked, Query, named
from attnknn.app.server.render import Looks, as_texts, png
from attnknn.app.server.security import IMAGE_BYTES, IMAGE_PIXELS, JSON_BYTES, Refusal
from attnknn.app.server.test_cases import calibrated, chosen
from attnknn.classifier.predictor import Explanation
from attnknn.core.errors import InputError, require

SHOWN, MOST_SHOWN, MOST_CASES, MOST_FORGOTTEN = 8, 64, 100, 1000
FILTERS = ("all", "wrong", "confident-wrong", "unsure")
WAIT = 5.0  # seconds, for another process that changes the model
_ABOUT = "model.json"
log = logging.getLogger(__name__)


class Explorer:
    """A model that is looked at and changed; what is changed lives here until it is saved.

    Args:
        folder: where the model came from; None of one that was made here, which can be neither reset nor saved.
        allow_save: whether it may be written back.
    """

    def __init__(self, model: Model, folder: Path | None = None, allow_save: bool = False) -> None:
        self._folder, self._allow_save = folder, allow_save and folder is not None
        self._lock, self._counting = SharedLock(), Lock()
        self._asked = Asked()
        self._models = 0  # that were taken: addresses of one's queries and test cases are not another's
        self._taken: dict[int, int] = {}  # test cases that were added, by their rows
        self._version = 0  # of the memory; it rises with every change
        self._scored: tuple[int, np.ndarray] | None = None
        self._take(model, self._stamped())

    def _take(self, model: Model, stamp: tuple[int, int] | None) -> None:
        """Begin with a model as it was read, or written."""
        self._model, self._looks = model, Looks(model)
        self._first = model.classifier.memory_.ids.copy()
        self._taken = {}
        self._asked.forget()
        self._models += 1
        self._version += 1
        self._stamp = stamp
        self._before = self._calibrated(self._case_probabilities())

    def _stamped(self) -> tuple[int, int] | None:
        """Tells whether the folder is still the one that was read."""
        with suppress(OSError):
            if self._folder is not None:
                found = (self._folder / _ABOUT).stat()
                return found.st_mtime_ns, found.st_ino
        return None

    def about(self) -> dict[str, Any]:
        """The model, and what is allowed."""
        with self._lock.reading():
            model, c = self._model, self._model.classifier
            return {
                "kind": model.input.kind,
                **self._looks.about(),
                "classes": [str(label) for label in c.classes_],
                "neighbours": min(c.n_neighbors, len(c.memory_)),
                "weights": c.weights,
                "metric": c.metric,
                "abstain": float(c.abstain),
                "cases": 0 if model.cases is None else len(model.cases.labels),
                "can_save": self._allow_save,
                "can_reset": self._folder is not None,
                "limits": {"image_bytes": IMAGE_BYTES, "image_pixels": IMAGE_PIXELS, "json_bytes": JSON_BYTES},
                "state": self._state(),
            }

    def _state(self) -> dict[str, int]:
        ids = self._model.classifier.memory_.ids
        kept = int(np.isin(self._first, ids).sum())
        added, forgotten = len(ids) - kept, len(self._first) - kept
        told = {"memory": len(ids), "added": added, "forgotten": forgotten, "first": int(ids[0])}
        return told | {"version": self._version, "model": self._models}

    # Asking

    def ask_picture(self, data: bytes, shown: int = SHOWN) -> dict[str, Any]:
        """The answer for a picture's bytes."""
        given = self._model.input
        if not isinstance(given, Pictures):
            raise Refusal(415, f"this model does not read pictures but {given.kind}; send JSON")
        require(len(data) > 0, "the picture is empty; send its bytes")
        pixels = given.decode(data, "the picture", IMAGE_PIXELS)
        return self._ask(Batch(["the picture"], pixels[None]), shown)

    def ask_row(self, row: Any, shown: int = SHOWN) -> dict[str, Any]:
        """The answer for a row, texts by the names of columns."""
        return self._ask(batch_of_row(self._model.input, row), shown)

    def ask_vector(self, vector: Any, shown: int = SHOWN) -> dict[str, Any]:
        """The answer for a vector's numbers."""
        return self._ask(batch_of_vector(self._model.input, vector), shown)

    def _ask(self, batch: Batch, shown: int) -> dict[str, Any]:
        model, models = self._model, self._models
        vectors, examples = model.input.vectors(batch), model.input.examples(batch)
        with self._lock.reading():
            if self._models != models:
                raise Refusal(409, "the model was read anew meanwhile; ask again")
            query = self._asked.keep(vectors, examples)
            return self._told(query, shown)

    def answer(self, name: str, shown: int = SHOWN, row: int | None = None) -> dict[str, Any]:
        """The answer for `case/3`, `memory/12` or `asked/…`.

        Args:
            row: a neighbour that is shown too, last, where it is not among the heaviest.

        Raises:
            Refusal: there is none of that name.
        """
        with self._lock.reading():
            return self._told(self._query(name), shown, row)

    def _told(self, query: Query, shown: int, row: int | None = None) -> dict[str, Any]:
        require(1 <= shown <= MOST_SHOWN, f"shown: {shown}; give 1 … {MOST_SHOWN}")
        found = self._explained(query)
        (answer,) = self._model.answers(found, shown)
        if row is not None and row not in [near["id"] for near in answer["neighbours"]]:
            (every,) = self._model.answers(found, found.ids.shape[1])
            for near in every["neighbours"]:
                if near["id"] == row:
                    answer["neighbours"].append(near)
                    rest = answer["rest"]
                    answer["rest"] = {"count": rest["count"] - 1, "weight": max(rest["weight"] - near["weight"], 0.0)}
        for near in answer["neighbours"]:
            near["example"] = self._looks.of_memory(near["id"])
        if query.row is not None:
            example = self._looks.of_memory(query.row, whole=True)
        else:
            example = self._looks.of_query(query.vectors, query.examples, query.at, query.name, whole=True)
        told = {"query": query.name, "label": query.label, "example": example, "state": self._state()}
        return told | {"answer": as_texts(answer)}

    def _query(self, name: str) -> Query:
        return named(name, self._model, self._asked)

    def _cases(self) -> Cases:
        if self._model.cases is None:
            raise Refusal(404, NO_CASES)
        return self._model.cases

    def _explained(self, query: Query) -> Explanation:
        if query.row is not None:
            return self._model.classifier.explain_rows([query.row])
        return self._model.classifier.explain(self._model.named(query.vectors[query.at : query.at + 1]))

    def change(self, name: str) -> dict[str, Any]:
        """Which neighbours would have to be forgotten, or to have another label, for another answer."""
        with self._lock.reading():
            query = self._query(name)
            if query.row is not None:
                (told,) = self._model.changes(ids=[query.row])
            else:
                (told,) = self._model.changes(self._model.named(query.vectors[query.at : query.at + 1]))
            return {**told, "prediction": str(told["prediction"]), "label": str(told["label"]), "query": name}

    def picture(self, name: str) -> bytes:
        """A PNG file of a query."""
        with self._lock.reading():
            query = self._query(name)
            pixels = query.examples.picture(query.at)
        if pixels is None:
            raise Refusal(404, "this model has no pictures")
        return png(pixels)

    # Test cases

    def _case_probabilities(self) -> np.ndarray | None:
        """(M, C), counted once for each state of the memory."""
        if self._model.cases is None:
            return None
        with self._counting:
            if self._scored is None or self._scored[0] != self._version:
                asked = self._model.named(self._model.cases.vectors)
                self._scored = self._version, self._model.classifier.predict_proba(asked)
            return self._scored[1]

    def _calibrated(self, probs: np.ndarray | None) -> dict[str, Any] | None:
        if probs is None:
            return None
        return calibrated(probs, np.searchsorted(self._model.classifier.classes_, self._cases().labels))

    def calibration(self) -> dict[str, Any]:
        """How far answers for the test cases can be believed, now and as the model was read."""
        with self._lock.reading():
            now = self._calibrated(self._case_probabilities())
            state = self._state()
            changed = state["added"] + state["forgotten"] > 0
            told = {"now": now, "before": self._before if changed else None, "state": state}
            return told | {"taken": len(self._cases_taken())}

    def _cases_taken(self) -> list[int]:
        """Test cases that are in the memory now."""
        return sorted(
            {case for row, case in self._taken.items() if self._model.classifier.memory_.positions(np.array(row)) >= 0}
        )

    def cases(
        self, of: str = "all", label: str = "", start: int = 0, count: int = 50, least: float = 0.8
    ) -> dict[str, Any]:
        """Test cases, some at a time.

        Args:
            of, least: see `cases.chosen`.
            label: only cases of this label; empty for all.
        """
        require(of in FILTERS, f"filter: {of}; give one of {', '.join(FILTERS)}")
        require(1 <= count <= MOST_CASES, f"count: {count}; give 1 … {MOST_CASES}")
        require(0 <= least <= 1, "least: give a confidence from 0 to 1")
        with self._lock.reading():
            cases, classes = self._cases(), self._model.classifier.classes_
            probs = self._case_probabilities()
            assert probs is not None
            confidence, predicted = probs.max(1), classes[probs.argmax(1)]
            hit = predicted == cases.labels
            rows = chosen(of, confidence, hit, least)
            if label:
                rows = rows[cases.labels[rows] == self._model.labels([label])[0]]
            listed = [
                {
                    "case": int(i),
                    "label": str(cases.labels[i]),
                    "prediction": str(predicted[i]),
                    "confidence": float(confidence[i]),
                    "right": bool(hit[i]),
                    "example": self._looks.of_query(cases.vectors, cases.examples, int(i), f"case/{i}"),
                }
                for i in rows[start : start + count]
            ]
            found = {"total": len(rows), "of": len(hit), "wrong": int((~hit).sum()), "start": start, "cases": listed}
            return found | {"state": self._state()}

    # Changing

    def add(self, name: str, label: str) -> dict[str, Any]:
        """Take a query into the memory."""
        with self._lock.writing():
            query = self._query(name)
            if query.row is not None:
                raise Refusal(409, f"row {query.row} is in the memory already; forget it first")
            chosen = self._model.labels([label])
            some = np.array([query.at])
            (row,) = self._model.add_vectors(query.vectors[some], query.examples.take(some), chosen)
            if name.startswith("case/"):
                self._taken[row] = query.at
            self._version += 1
            return {"id": row, "state": self._state()}

    def forget(self, ids: Sequence[Any]) -> dict[str, Any]:
        """Take rows out of the memory."""
        fits = isinstance(ids, list) and 0 < len(ids) <= MOST_FORGOTTEN
        fits = fits and all(type(row) is int and 0 <= row < 2**62 for row in ids)
        require(fits, f"ids: give a list of 1 … {MOST_FORGOTTEN} row ids")
        with self._lock.writing():
            self._model.forget(ids)
            self._version += 1
            return {"ids": ids, "state": self._state()}

    def reset(self) -> dict[str, Any]:
        """Go back to what is on disk."""
        if self._folder is None:
            raise Refusal(409, "this model was not read from a folder, so there is nothing to go back to")
        stamp = self._stamped()
        try:
            model = Model.load(self._folder)
        except InputError as error:
            log.error("reset: %s", error)  # it names paths
            raise Refusal(409, "the model on disk cannot be read any more; the server's terminal says why") from None
        with self._lock.writing():
            self._take(model, stamp)
            return {"state": self._state()}

    def save(self) -> dict[str, Any]:
        """Write the model back to its folder; test cases that were added to the memory are none any more."""
        if not self._allow_save or self._folder is None:
            raise Refusal(403, "saving is not allowed; start the server with --allow-save")
        with self._lock.writing(), _alone(self._folder):
            if self._stamped() != self._stamp:
                raise Refusal(409, "the model on disk has been changed since it was read; go back to it first")
            model, taken = self._model, self._cases_taken()
            if taken:
                kept = np.setdiff1d(np.arange(len(self._cases().labels)), taken)
                model = replace(model, cases=self._cases().take(kept) if len(kept) else None)
            model.save(self._folder)
            self._take(model, self._stamped())
            return {"state": self._state()}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process changes the model."""
    from filelock import Timeout

    try:
        with lock_of(folder, WAIT):
            yield
    except Timeout:
        raise Refusal(409, "another process is changing the model on disk; try again") from None
    except OSError as error:
        raise Refusal(409, f"the model could not be written ({error.strerror}); nothing is lost here") from None

"""A served model: answers, test cases, counterfactuals and changes to the memory. All methods are thread-safe."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_urlsafe
from threading import Lock
from typing import Any

import numpy as np

from attnknn import __version__
from attnknn.app.model.inputs import Batch, Input
from attnknn.app.model.model import Cases, Model
from attnknn.app.server.label_review import LabelReview
from attnknn.app.server.queries import MAX_RECENT, NO_CASES, Query, find_query
from attnknn.app.server.render import Renderer, png
from attnknn.app.server.security import IMAGE_BYTES, RequestError
from attnknn.app.server.test_cases import FILTERS, calibration, select
from attnknn.classifier.locking import LockedError, file_identity, model_lock, recover_unlocked
from attnknn.core.errors import InputError, is_disk_full, require
from attnknn.core.lock import SharedLock

SHOWN, MAX_SHOWN, MAX_CASES, MAX_FORGOTTEN = 8, 64, 100, 1000
LOCK_TIMEOUT = 5.0  # seconds to wait for another process that changes the model
log = logging.getLogger(__name__)


class Session:
    """A model and its unsaved changes.

    Args:
        name: title of the page.
        folder: where the model was loaded from; None if it can be neither reset nor saved.
        allow_save: whether it may be written back.
    """

    def __init__(self, model: Model, name: str, folder: Path | None, allow_save: bool) -> None:
        self._name, self._folder, self._allow_save = name, folder, allow_save and folder is not None
        self._lock, self._scoring, self._auditing = SharedLock(), Lock(), Lock()
        self._recent: deque[Query] = deque(maxlen=MAX_RECENT)
        self._models = 0  # models loaded; query names and case numbers are of one model
        self._version = 0  # of the memory; incremented by every change
        self._scored: tuple[int, np.ndarray, np.ndarray] | None = None
        self._review: LabelReview | None = None
        self._start(model, self._file_stamp())

    def _start(self, model: Model, stamp: tuple[int, int] | None) -> None:
        """Start with a model as it is on disk."""
        self._model, self._renderer = model, Renderer(model)
        self._initial_ids = model.memory.ids.copy()
        self._recent.clear()
        self._review = None
        self._models += 1
        self._version += 1
        self._stamp = stamp
        self._initial_calibration = self._calibration()

    def _file_stamp(self) -> tuple[int, int] | None:
        if self._folder is None:
            return None
        recover_unlocked(self._folder)
        return file_identity(self._folder / "model.json")

    def about(self) -> dict[str, Any]:
        """Description of the model, a limit and permissions."""
        with self._lock.reading():
            model, c = self._model, self._model.classifier
            return {
                "name": self._name,
                "version": __version__,
                "kind": model.input.kind,
                **self._renderer.input_form(),
                "classes": [str(label) for label in c.classes_],
                "abstain": float(c.abstain),
                "cases": 0 if model.cases is None else len(model.cases.labels),
                "can_save": self._allow_save,
                "can_reset": self._folder is not None,
                "limits": {"image_bytes": IMAGE_BYTES},
                "state": self._state(),
            }

    def _state(self) -> dict[str, int]:
        ids = self._model.memory.ids
        remaining = int(np.isin(self._initial_ids, ids).sum())
        return {
            "memory": len(ids),
            "added": len(ids) - remaining,
            "forgotten": len(self._initial_ids) - remaining,
            "first": int(ids[0]),
            "version": self._version,
            "model": self._models,
        }

    def ask(self, parse: Callable[[Input, Any], Batch], value: Any, shown: int = SHOWN) -> dict[str, Any]:
        """Predict and explain a new query, parsed by a function of module `parse`; see `answer`."""
        model, models = self._model, self._models
        batch = parse(model.input, value)
        vectors, examples = model.input.vectors(batch), model.input.examples(batch)
        with self._lock.reading():
            if self._models != models:
                raise RequestError(409, "the model was reloaded in the meantime; ask again")
            query = Query(f"asked/{token_urlsafe(9)}", vectors, examples)
            self._recent.append(query)
            return self._explain(query, shown)

    def answer(self, name: str, shown: int = SHOWN, row_id: int | None = None) -> dict[str, Any]:
        """Predict and explain `case/3`, `memory/12` or `asked/…`.

        Args:
            shown: number of neighbours to list, largest weight first.
            row_id: id of a neighbour to list in any case, last.
        """
        with self._lock.reading():
            return self._explain(self._query(name), shown, row_id)

    def _explain(self, query: Query, shown: int, row_id: int | None = None) -> dict[str, Any]:
        require(1 <= shown <= MAX_SHOWN, f"shown: {shown}; give 1 … {MAX_SHOWN}")
        model = self._model
        if query.memory_id is None:
            explanation = model.classifier.explain(model.with_names(query.vector))
        else:
            explanation = model.classifier.explain_rows([query.memory_id])
        (answer,) = model.answers(explanation, shown, row_id=row_id)
        answer["prediction"], answer["set"] = str(answer["prediction"]), list(map(str, answer["set"]))
        for entry in (*answer["probabilities"], *answer["neighbours"], *answer["null"]["classes"]):
            entry["label"] = str(entry["label"])
        for neighbour in answer["neighbours"]:
            neighbour["example"] = self._renderer.example(self._query(f"memory/{neighbour['id']}"))
        return {
            "query": query.name,
            "label": query.label,
            "example": self._renderer.example(query, whole=True),
            "state": self._state(),
            "answer": answer,
        }

    def _query(self, name: str) -> Query:
        return find_query(name, self._model, self._recent)

    def change(self, name: str) -> dict[str, Any]:
        """Counterfactual of a query."""
        with self._lock.reading():
            query, model = self._query(name), self._model
            if query.memory_id is None:
                (change,) = model.counterfactuals(model.with_names(query.vector))
            else:
                (change,) = model.counterfactuals(ids=[query.memory_id])
            return {**change, "prediction": str(change["prediction"]), "label": str(change["label"]), "query": name}

    def picture(self, name: str) -> bytes:
        """PNG of a query."""
        with self._lock.reading():
            query = self._query(name)
            image = query.examples.image(query.row)
        if image is None:
            raise RequestError(404, "this model has no pictures")
        return png(image)

    def _cases(self) -> Cases:
        if self._model.cases is None:
            raise RequestError(404, NO_CASES)
        return self._model.cases

    def _score_cases(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities (M, C) of the test cases and those held out (≤ M,), cached for each version of the memory."""
        with self._scoring:
            if self._scored is None or self._scored[0] != self._version:
                vectors = self._model.with_names(self._cases().vectors)
                held_out = np.flatnonzero(~self._model.cases_in_memory())
                self._scored = self._version, self._model.classifier.predict_proba(vectors), held_out
            return self._scored[1:]

    def _calibration(self) -> dict[str, Any] | None:
        if self._model.cases is None:
            return None
        probs, held_out = self._score_cases()
        y = np.searchsorted(self._model.classifier.classes_, self._model.cases.labels)
        return calibration(probs[held_out], y[held_out]) if len(held_out) else None

    def calibration(self) -> dict[str, Any]:
        """Calibration on the test cases not in the memory, now and at first; `taken` is the number of the others."""
        with self._lock.reading():
            state = self._state()
            changed = state["added"] + state["forgotten"] > 0
            before = self._initial_calibration if changed else None
            taken = 0 if self._model.cases is None else len(self._model.cases.labels) - len(self._score_cases()[1])
            return {"now": self._calibration(), "before": before, "state": state, "taken": taken}

    def cases(self, name: str, label: str, start: int, count: int, min_confidence: float) -> dict[str, Any]:
        """One page of the list of test cases that are not in the memory.

        Args:
            name, min_confidence: of the filter; see `select`.
            label: true label of the cases to list; empty for all.
        """
        require(name in FILTERS, f"filter: {name}; give one of {', '.join(FILTERS)}")
        require(1 <= count <= MAX_CASES, f"count: {count}; give 1 … {MAX_CASES}")
        require(0 <= min_confidence <= 1, "least: give a confidence from 0 to 1")
        with self._lock.reading():
            cases, classes = self._cases(), self._model.classifier.classes_
            probs, held_out = self._score_cases()
            confidence, predictions = probs.max(1), classes[probs.argmax(1)]
            correct = predictions == cases.labels
            rows = held_out[select(name, confidence[held_out], correct[held_out], min_confidence)]
            if label:
                rows = rows[cases.labels[rows] == self._model.parse_labels([label])[0]]
            page = [
                {
                    "case": int(i),
                    "label": str(cases.labels[i]),
                    "prediction": str(predictions[i]),
                    "confidence": float(confidence[i]),
                    "right": bool(correct[i]),
                    "example": self._renderer.example(self._query(f"case/{i}")),
                }
                for i in rows[start : start + count]
            ]
            counts = {"total": len(rows), "of": len(held_out), "wrong": int((~correct[held_out]).sum()), "start": start}
            return {**counts, "cases": page, "state": self._state()}

    def add(self, name: str, label: str, new_class: bool = False) -> dict[str, Any]:
        """Add a query to the memory, also with the label of a new class."""
        with self._lock.writing():
            query = self._query(name)
            if query.memory_id is not None:
                raise RequestError(409, f"row {query.memory_id} is in the memory already; forget it first")
            example = query.examples.take(np.array([query.row]))
            labels = self._model.parse_labels([label], new_class)
            with self._change():
                (row_id,) = self._model.add_vectors(query.vector, example, labels)
            return {"id": row_id, "state": self._state()}

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Note a change of the memory; with other classes it is another model to the page."""
        classes = self._model.classifier.classes_
        yield
        self._version += 1
        self._models += not np.array_equal(classes, self._model.classifier.classes_)

    def forget(self, ids: Sequence[Any]) -> dict[str, Any]:
        """Remove rows from the memory."""
        valid = isinstance(ids, list) and 0 < len(ids) <= MAX_FORGOTTEN
        valid = valid and all(type(row_id) is int and 0 <= row_id < 2**62 for row_id in ids)
        require(valid, f"ids: give a list of 1 … {MAX_FORGOTTEN} row ids")
        with self._lock.writing():
            with self._change():
                self._model.forget(ids)
            return {"ids": ids, "state": self._state()}

    def _label_review(self) -> LabelReview:
        with self._auditing:
            if self._review is None:
                self._review = LabelReview(self._model)
            return self._review

    def issues(self, start: int, count: int) -> dict[str, Any]:
        """One page of the labels by quality; the first call audits the memory."""
        with self._lock.reading():
            page = self._label_review().page(
                self._model, start, count, lambda name: self._renderer.example(self._query(name))
            )
            return {**page, "state": self._state()}

    def decide(self, row_id: Any, decision: Any, label: Any) -> dict[str, Any]:
        """Note what to do with a row whose label may be wrong."""
        with self._lock.writing():
            return {**self._label_review().decide(self._model, row_id, decision, label), "state": self._state()}

    def apply_decisions(self) -> dict[str, Any]:
        """Change the memory by the decisions."""
        with self._lock.writing():
            with self._change():
                counts = self._label_review().apply(self._model)
            return {**counts, "state": self._state()}

    def decisions(self) -> str:
        """The decisions as CSV."""
        with self._lock.reading():
            return self._label_review().to_csv()

    def reset(self) -> dict[str, Any]:
        """Reload the model from disk."""
        if self._folder is None:
            raise RequestError(409, "this model was not loaded from a folder, so it cannot be reset")
        stamp = self._file_stamp()
        try:
            model = Model.load(self._folder)
        except InputError as error:
            log.error("reset: %s", error)  # not for clients: it names paths
            raise RequestError(409, "the model on disk cannot be read; see the server's terminal") from None
        with self._lock.writing():
            self._start(model, stamp)
            return {"state": self._state()}

    def save(self) -> dict[str, Any]:
        """Write the model to its folder, without the test cases that are in its memory."""
        if not self._allow_save or self._folder is None:
            raise RequestError(403, "saving is not allowed; start the server with --allow-save")
        with self._lock.writing(), _locked(self._folder):
            if self._file_stamp() != self._stamp:
                raise RequestError(409, "the model on disk was changed since it was loaded; reset first")
            model = self._model
            if model.cases is not None:
                held_out = self._score_cases()[1]
                model = replace(model, cases=model.cases.take(held_out) if len(held_out) else None)
            model.save(self._folder)
            self._start(model, self._file_stamp())
            return {"state": self._state()}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the model's lock on disk; errors of locking and writing become `RequestError`."""
    try:
        with model_lock(folder, LOCK_TIMEOUT):
            yield
    except LockedError:
        raise RequestError(409, "another process is changing the model on disk; try again") from None
    except OSError as error:
        status = 507 if is_disk_full(error) else 409
        raise RequestError(status, f"the model was not saved ({error.strerror}); the changes are still here") from None

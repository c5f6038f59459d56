"""Rows that are asked for, and the names under which they can be asked for again."""

import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.model import Model
from attnknn.app.server.security import Refusal

KEPT = 64
NO_CASES = "this model has no test cases; `attnknn fit` keeps some"


@dataclass(frozen=True)
class Query:
    """A row that is asked for.

    Attributes:
        name: `case/3`, `memory/12`, or `asked/…` with the token that it was given.
        vectors: (B, D), of which it is number `at`; empty of a row of the memory.
        label: the true one; None where it is not known.
        row: its id, of a row of the memory.
    """

    name: str
    vectors: np.ndarray
    examples: Examples
    at: int = 0
    label: str | None = None
    row: int | None = None


class Asked:
    """The last `KEPT` queries that clients sent, by tokens."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Query] = OrderedDict()
        self._lock = Lock()

    def keep(self, vectors: np.ndarray, examples: Examples) -> Query:
        """Give vectors (1, D) a name."""
        query = Query(f"asked/{secrets.token_urlsafe(9)}", vectors, examples)
        with self._lock:
            self._kept[query.name] = query
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return query

    def forget(self) -> None:
        """Keep none of them: what one model reads, another may not."""
        with self._lock:
            self._kept.clear()

    def get(self, name: str) -> Query:
        """What was given that name."""
        with self._lock:
            found = self._kept.get(name)
        if found is None:
            raise Refusal(404, f"the last {KEPT} queries are kept, and this is not among them; ask it again")
        return found


def named(name: str, model: Model, asked: Asked) -> Query:
    """The query of a name.

    Raises:
        Refusal: there is none.
    """
    kind, _, rest = name.partition("/")
    if kind == "asked":
        return asked.get(name)
    number = int(rest) if re.fullmatch("[0-9]{1,18}", rest) else -1
    if kind == "memory":
        memory = model.classifier.memory_
        at = int(memory.positions(np.array([number]))[0])
        if at < 0:
            raise Refusal(404, f"row {rest[:20]} is not in the memory, which holds {len(memory)} rows; name another")
        label = str(model.classifier.classes_[memory.y[at]])
        return Query(name, np.empty((0, 0)), model.examples, at, label, number)
    if kind != "case":
        raise Refusal(404, "a query is case/…, memory/… or asked/…; correct it")
    if model.cases is None:
        raise Refusal(404, NO_CASES)
    if not 0 <= number < len(model.cases.labels):
        raise Refusal(404, f"there is no test case {rest[:20]}; they are 0 … {len(model.cases.labels) - 1}")
    return Query(name, model.cases.vectors, model.cases.examples, number, str(model.cases.labels[number]))

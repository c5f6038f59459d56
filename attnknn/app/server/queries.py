"""Look up queries by name: test cases, rows of the memory, and the last queries that clients sent."""

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.model import Model
from attnknn.app.server.security import RequestError

MAX_RECENT = 64
NO_CASES = "this model has no test cases; `attnknn fit` keeps some"


@dataclass(frozen=True)
class Query:
    """A row to explain.

    Attributes:
        name: `case/3`, `memory/12`, or `asked/…` with a token.
        vector: (1, D); empty for a row of the memory.
        examples: readable form, with the query at position `row`.
        label: true label; None if unknown.
        memory_id: id of a row of the memory; else None.
    """

    name: str
    vector: np.ndarray
    examples: Examples
    row: int = 0
    label: str | None = None
    memory_id: int | None = None


def find_query(name: str, model: Model, recent: Collection[Query]) -> Query:
    """Find a query by name, also among the `recent` ones of clients; raise RequestError if there is none."""
    kind, _, rest = name.partition("/")
    number = int(rest) if re.fullmatch("[0-9]{1,18}", rest) else -1
    if kind == "asked":
        for query in tuple(recent):
            if query.name == name:
                return query
        raise RequestError(404, f"unknown query; the last {MAX_RECENT} are stored: ask it again")
    if kind == "memory":
        memory = model.memory
        row = int(memory.positions(np.array([number]))[0])
        if row < 0:
            raise RequestError(404, f"row {rest[:20]} is not in the memory, which holds {len(memory)} rows")
        label = str(model.classifier.classes_[memory.y[row]])
        return Query(name, np.empty((0, 0)), model.examples, row, label, number)
    if kind != "case":
        raise RequestError(404, "a query is case/…, memory/… or asked/…; correct it")
    cases = model.cases
    if cases is None:
        raise RequestError(404, NO_CASES)
    if not 0 <= number < len(cases.labels):
        raise RequestError(404, f"no test case {rest[:20]}; they are 0 … {len(cases.labels) - 1}")
    return Query(name, cases.vectors[number : number + 1], cases.examples, number, str(cases.labels[number]))

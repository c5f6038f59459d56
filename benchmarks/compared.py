"""Ours beside peers: what was measured in the same rounds, as rows that hold the ratio within a round.

A ratio says how many times as good ours is: above 1 ours is faster, or reaches more. It is taken round by round, and
its median, least and most are told, since what else the machine does falls on all who take part in a round alike.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnknn.experiments.profile import milliseconds, rounds

Row = dict[str, Any]
Measured = Mapping[str, Sequence[float] | None]  # a number a round of each that takes part; None: not installed


def peer(module: str) -> Any:
    """The module of a peer, or None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most of the rounds."""
    return {"value": float(np.median(values)), "low": float(min(values)), "high": float(max(values))}


def compared(
    what: str,
    unit: str,
    measured: Measured,
    ours: str,
    higher_is_better: bool = False,
    recalls: Mapping[str, float] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """A row for each peer: what, unit; of ours and of the peer name, value, low, high; ratio; recalls; note.

        ratio = peer/ours, or ours/peer where higher is better, in the same round

    Args:
        ours: its name in `measured`; all others are peers.
        recalls: share of the true neighbours found, of those that search.
        notes: what is to be said of a peer.
    """
    own, recalls, notes = measured[ours], recalls or {}, notes or {}
    assert own is not None, f"{ours} is ours and always there"
    table: list[Row] = []
    for name, theirs in measured.items():
        if name == ours:
            continue
        row: Row = {"what": what, "unit": unit, "ours": {"name": ours, **spread(own)}, "peer": {"name": name}}
        row["ratio"], row["note"] = None, notes.get(name, "")
        if theirs is None:
            row["note"] = "not installed"
        else:
            row["peer"] |= spread(theirs)
            better = [(a / b if higher_is_better else b / a) for a, b in zip(own, theirs, strict=True)]
            row["ratio"] = spread(better)
        for side, of in (("ours", ours), ("peer", name)):
            if of in recalls:
                row[side]["recall"] = recalls[of]
        table.append(row)
    return table


def in_rounds(calls: Mapping[str, Callable[[], object]], repeats: int, per: float = 1) -> dict[str, list[float]]:
    """Milliseconds that each call takes in each of `repeats` rounds (see `index_profile.rounds`), by `per` queries."""
    timed = {name: partial(milliseconds, call) for name, call in calls.items()}
    return {name: [ms / per for ms in of] for name, of in rounds(timed, repeats).items()}


def one_by_one(
    calls: Mapping[str, Callable[[Any], object]], items: np.ndarray, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Milliseconds a call takes for each of the items alone, as the quantiles `p50` and `p99` of each round."""

    def once(call: Callable[[Any], object]) -> list[float]:
        return [milliseconds(partial(call, item)) for item in items]

    taken = rounds({name: partial(once, call) for name, call in calls.items()}, repeats)
    of = {"p50": 0.5, "p99": 0.99}
    return {p: {name: [float(np.quantile(r, q)) for r in all_] for name, all_ in taken.items()} for p, q in of.items()}

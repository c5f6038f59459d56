"""Compare ours with peers that were timed in the same rounds.

The ratio says how many times as good ours is: above 1 ours is faster or more accurate. It is taken within each round,
since other load on the machine affects all methods of a round alike; median, minimum and maximum are reported.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnknn.experiments.profile import milliseconds, rounds

Row = dict[str, Any]
Measured = Mapping[str, Sequence[float] | None]  # a number per round and method; None: not installed


def peer(module: str) -> Any:
    """The module of a peer, or None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, minimum and maximum."""
    return {"value": float(np.median(values)), "low": float(min(values)), "high": float(max(values))}


def compare(
    what: str,
    unit: str,
    measured: Measured,
    ours: str,
    higher_is_better: bool = False,
    recalls: Mapping[str, float] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """A row per peer: what, unit; of ours and of the peer name, value, low, high, recall; ratio; note.

        ratio = peer/ours, or ours/peer if higher is better, in the same round

    Args:
        ours: key of ours in `measured`; the others are peers.
        recalls: of search methods, share of the true neighbours.
        notes: by peer.
    """
    own, recalls, notes = measured[ours], recalls or {}, notes or {}
    assert own is not None, f"{ours}: not measured"
    table: list[Row] = []
    for name, values in measured.items():
        if name == ours:
            continue
        row: Row = {"what": what, "unit": unit, "ours": {"name": ours, **spread(own)}, "peer": {"name": name}}
        row |= {"ratio": None, "note": "not installed"}
        if values is not None:
            row["peer"] |= spread(values)
            ratios = [(a / b if higher_is_better else b / a) for a, b in zip(own, values, strict=True)]
            row |= {"ratio": spread(ratios), "note": notes.get(name, "")}
        for side in (row["ours"], row["peer"]):
            if side["name"] in recalls:
                side["recall"] = recalls[side["name"]]
        table.append(row)
    return table


def time_rounds(calls: Mapping[str, Callable[[], object]], repeats: int, per: float = 1) -> dict[str, list[float]]:
    """Milliseconds of each call in each round (see `profile.rounds`), divided by `per`."""
    timed = {name: partial(milliseconds, call) for name, call in calls.items()}
    return {name: [ms / per for ms in times] for name, times in rounds(timed, repeats).items()}


def time_singles(
    calls: Mapping[str, Callable[[Any], object]], items: np.ndarray, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each call for single items, as the quantiles `p50` and `p99` of each round."""

    def once(call: Callable[[Any], object]) -> list[float]:
        return [milliseconds(partial(call, item)) for item in items]

    times = rounds({name: partial(once, call) for name, call in calls.items()}, repeats)
    return {
        p: {name: [float(np.quantile(values, q)) for values in by_round] for name, by_round in times.items()}
        for p, q in {"p50": 0.5, "p99": 0.99}.items()
    }

"""What an index costs and loses on a dataset's own embeddings, and what a head adds to a query beside the search.

Everything is timed in turn, round after round, so that what else the machine does falls on all alike; each round begins
with another, and the first round is not counted.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from attnknn.core.artifacts import BANK, TEST, Embeddings, Neighbours, Predictions
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests
from attnknn.heads.attention import Head
from attnknn.heads.classify import classify
from attnknn.index.bank import Bank, build
from attnknn.index.faiss_index import FAISS, Index, Nearest
from attnknn.neighbours.space import EmbeddingSpace

NEAREST = 10  # neighbours that recall is also told of, whatever k_eval is
_EXACT = 0.9999  # recall from which on; inner product finds other neighbours than L2 where vectors differ in length
_CPUS = Path("/proc/cpuinfo")
T = TypeVar("T")


@dataclass(frozen=True)
class _Stopwatch(Index):
    """An index that takes down the seconds spent in each of its own searches."""

    seconds: list[float] = field(default_factory=list)

    def nearest(self, *given: Any) -> Nearest:
        nearest = super().nearest(*given)

        def timed(queries: np.ndarray, k: int) -> np.ndarray:
            start = time.perf_counter()
            found = nearest(queries, k)
            self.seconds.append(time.perf_counter() - start)
            return found

        return timed


def rounds(calls: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """What each call returns in each of `repeats` rounds through all of them, after a first that is not counted.

    Each round begins one call later than the one before, since whoever is first may pay for what was there before.
    """
    found: dict[str, list[T]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(repeats + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            value = calls[name]()
            if turn:
                found[name].append(value)
    return found


def milliseconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def recall(sims: np.ndarray, exact: np.ndarray, k: int) -> float:
    """Share of k neighbours found that are no further than the true k-th; a tie with it counts (Aumüller et al. 2020).

    Args:
        sims, exact: similarities (B, K) of what was found and of the true neighbours, nearest first, K ≥ k.
    """
    return float((sims[:, :k] >= exact[:, k - 1 : k]).mean())


def _indexes(
    embeddings: Embeddings, metric: str, hnsw: Mapping[str, int], ivf: Mapping[str, int]
) -> tuple[dict[str, Bank], dict[str, float]]:
    """Every index over the bank rows, and the seconds it was built in."""
    rows = embeddings.rows(BANK)
    z = np.asarray(embeddings.z)[rows]
    banks, seconds = {}, {}
    for name, settings in {
        "flat_l2": {"kind": "flat", "metric": "l2"},
        "flat_ip": {"kind": "flat", "metric": "ip"},
        "hnsw": {"kind": "hnsw", "metric": metric, **hnsw},
        "ivf": {"kind": "ivf", "metric": metric, **ivf},
    }.items():
        start = time.perf_counter()
        made = build(z, rows, **settings)  # type: ignore[arg-type]
        seconds[name] = time.perf_counter() - start
        # Whatever the index compares by, what it finds is ordered by the similarity that the heads were tuned with.
        banks[name] = replace(made, metric=metric)
    return banks, seconds


def _row(of: str, name: str, quantity: str, values: "float | list[float]") -> dict[str, Any]:
    v = np.atleast_1d(values)
    spread = {"value": float(np.median(v)), "low": float(v.min()), "high": float(v.max())}
    return {of: name, "quantity": quantity, **spread}


def _timings(of: str, name: str, batched: list[float], singles: list[list[float]]) -> Table:
    p50, p99 = (list(np.quantile(singles, q, axis=1)) for q in (0.5, 0.99))
    return [
        _row(of, name, "batched_ms", batched),
        _row(of, name, "single_p50_ms", p50),
        _row(of, name, "single_p99_ms", p99),
    ]


def _times_as_fast(quantity: str, taken: Mapping[str, list[float]], exact: Sequence[str]) -> Table:
    """How many times as fast each index is as the exact one of least median time, in the same round."""
    fastest = taken[min(exact, key=lambda name: float(np.median(taken[name])))]
    return [
        _row("index", name, quantity, [base / ms for base, ms in zip(fastest, own, strict=True)])
        for name, own in taken.items()
    ]


def _drawn(rows: np.ndarray, singles: int, seed: int) -> np.ndarray:
    """At most so many of the rows, each as a batch of its own."""
    return np.random.default_rng(seed).permutation(rows)[:singles, None]


def profile_indexes(
    embeddings: Embeddings,
    k: int,
    metric: str,
    hnsw: Mapping[str, int],
    ivf: Mapping[str, int],
    repeats: int,
    singles: int,
    seed: int,
) -> tuple[Table, dict[str, Neighbours]]:
    """Flat L2, flat inner product, HNSW and IVF over the bank rows, searched for the k (or 10) nearest of test rows.

    What is timed is `Bank.search`, with the similarities computed again from the vectors; `index_ms` is the index's own
    part of it.

    Args:
        metric: of the similarities that recall and heads go by, `l2` or `ip`; HNSW and IVF compare by it too.
        hnsw, ivf: their keyword arguments of `bank.build`.
        repeats: rounds that are timed, after one that is not.
        singles: test rows, drawn by the seed, that are searched one by one in each round.

    Returns:
        Rows of index (`flat_l2`, `flat_ip`, `hnsw`, `ivf`), quantity, value, low, high; and each index's neighbours of
        the test rows. Quantities: build_s (one build: low = high), memory_mib (of the index as it is written),
        batched_ms and index_ms (a query, all test rows at once: median, least and most over the rounds), single_p50_ms
        and single_p99_ms (of the rows one by one, over the rounds too), recall_at_10 and recall_at_k (see `recall`),
        exact (1 where the index is, else 0), batched_speedup (by index_ms) and single_speedup (by single_p50_ms), how
        many times as fast as the fastest exact index in the same round, and of IVF the lists it has, nlist, and reads,
        nprobe.
    """
    banks, built = _indexes(embeddings, metric, hnsw, ivf)
    rows = embeddings.rows(TEST)
    queries = np.asarray(embeddings.z)[rows]
    alone = np.asarray(embeddings.z)[_drawn(rows, singles, seed)]  # (M, 1, D)
    wanted = min(max(k, NEAREST), int((embeddings.part == BANK).sum()))
    found: dict[str, Neighbours] = {}

    def together(name: str) -> tuple[float, float]:
        watch = _Stopwatch(**vars(banks[name].index))
        start = time.perf_counter()
        ids, sims = replace(banks[name], index=watch).search(queries, wanted)
        whole = time.perf_counter() - start
        found[name] = Neighbours(rows.astype(np.int32), ids, sims, metric)
        return 1e3 * whole / len(rows), 1e3 * sum(watch.seconds) / len(rows)

    def one_by_one(name: str) -> list[float]:
        return [milliseconds(partial(banks[name].search, query, wanted)) for query in alone]

    batched = rounds({name: partial(together, name) for name in banks}, repeats)
    single = rounds({name: partial(one_by_one, name) for name in banks}, repeats)
    exact = found[f"flat_{metric}"].sims
    table: Table = []
    for name, of in banks.items():
        whole, own = map(list, zip(*batched[name], strict=True))
        table += [
            _row("index", name, "build_s", built[name]),
            _row("index", name, "memory_mib", of.n_bytes / 2**20),
            *_timings("index", name, whole, single[name]),
            _row("index", name, "index_ms", own),
            _row("index", name, "recall_at_10", recall(found[name].sims, exact, min(NEAREST, wanted))),
            _row("index", name, "recall_at_k", recall(found[name].sims, exact, min(k, wanted))),
        ]
    exactly = [n for n in banks if n.startswith("flat") and recall(found[n].sims, exact, min(k, wanted)) >= _EXACT]
    table += [_row("index", name, "exact", float(name in exactly)) for name in banks]
    own_ms = {name: [own for _, own in of] for name, of in batched.items()}
    p50_ms = {name: list(np.quantile(of, 0.5, axis=1)) for name, of in single.items()}
    table += _times_as_fast("batched_speedup", own_ms, exactly) + _times_as_fast("single_speedup", p50_ms, exactly)
    lists = banks["ivf"].index.made
    return table + [_row("index", "ivf", of, getattr(lists, of)) for of in ("nlist", "nprobe")], found


def profile_heads(
    space: EmbeddingSpace, heads: Mapping[str, Head], k: int, repeats: int, singles: int, seed: int, device: str = "cpu"
) -> Table:
    """What each head takes for a test row whose k neighbours are stored: gather, weigh, vote.

    Args:
        heads: `distance` among them, to which the others are compared round by round.
        others: as for `profile_indexes`.

    Returns:
        Rows of head, quantity, value, low, high: batched_ms, single_p50_ms and single_p99_ms as of `profile_indexes`,
        and over_distance_ms, batched_ms less that of `distance` in the same round.
    """
    rows = space.embeddings.rows(TEST)
    alone = _drawn(rows, singles, seed)

    def together(head: Head) -> float:
        return milliseconds(lambda: classify(head, space, rows, k, device)) / len(rows)

    def one_by_one(head: Head) -> list[float]:
        return [milliseconds(partial(classify, head, space, row, k, device)) for row in alone]

    batched = rounds({name: partial(together, head) for name, head in heads.items()}, repeats)
    single = rounds({name: partial(one_by_one, head) for name, head in heads.items()}, repeats)
    table: Table = []
    for name in heads:
        over = [a - b for a, b in zip(batched[name], batched["distance"], strict=True)]
        table += [*_timings("head", name, batched[name], single[name]), _row("head", name, "over_distance_ms", over)]
    return table


def accuracy_lost(
    space: EmbeddingSpace,
    found: Mapping[str, Neighbours],
    heads: Mapping[str, Head],
    k: int,
    bins: int,
    resamples: int,
    confidence: float,
    seed: int,
    device: str = "cpu",
) -> Table:
    """Scores of each head by the neighbours that each index finds, against the same head by the true ones.

    Returns:
        Rows of index, method, metric, value, difference (value less that by exact search), low, high, errors, p, test:
        see `scorecard.intervals_and_tests`.
    """
    exact, e = f"flat_{space.neighbours.metric}", space.embeddings
    rows = e.rows(TEST)
    probs = {
        f"{method} {index}": classify(head, replace(space, neighbours=near), rows, k, device)
        for index, near in found.items()
        for method, head in heads.items()
    }
    stacked = np.stack(list(probs.values()))
    made = Predictions(rows.astype(np.int32), np.asarray(e.y[rows]), stacked, tuple(probs), tuple(e.classes))
    names = [(method, index) for index in found if index != exact for method in heads]
    pairs = [(f"{method} {index}", f"{method} {exact}") for method, index in names]
    intervals, paired = intervals_and_tests(made, pairs, bins, resamples, confidence, seed, TESTED)
    values = {(row["method"], row["metric"]): row["value"] for row in intervals}
    table: Table = []
    for row in paired:
        method, index = row["method"].split()
        told = {key: row[key] for key in ("difference", "low", "high", "errors", "p", "test")}
        value = values[row["method"], row["metric"]]
        table.append({"index": index, "method": method, "metric": row["metric"], "value": value, **told})
    return table


def machine() -> dict[str, str]:
    """What timings depend on: processor, cores, system, what else it does, and versions.

    `load` is the mean number of processes that wanted a core in the last minute; NaN where the system does not tell.
    """
    told = _CPUS.read_text("utf-8").splitlines() if _CPUS.is_file() else []
    names = [line.partition(":")[2].strip() for line in told if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "nan",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "faiss": FAISS,
        "numpy": np.__version__,
        "torch": torch.__version__,
    }

"""Time and recall of each index on a dataset's embeddings, and time of each head per query.

Calls are timed in rounds, so that other load on the machine affects all of them; each round begins with another call,
and the first round is a warm-up.
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

from attnknn.core.artifacts import BANK, TEST, Embeddings, Neighbours
from attnknn.evaluation.evaluate import as_predictions
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests
from attnknn.heads.attention import Head
from attnknn.heads.classify import classify
from attnknn.index.bank import build
from attnknn.index.faiss_index import FAISS, CandidateSearch, Index
from attnknn.neighbours.space import EmbeddingSpace

NEAREST = 10  # neighbours of `recall_at_10`
_EXACT = 0.9999  # lowest recall of an exact index; inner product is not exact for L2 if norms differ
_CPUS = Path("/proc/cpuinfo")
T = TypeVar("T")


@dataclass(frozen=True)
class _Stopwatch(Index):
    """An index that records the seconds of each search."""

    seconds: list[float] = field(default_factory=list)

    def searcher(self, *args: Any) -> CandidateSearch:
        search = super().searcher(*args)

        def timed(queries: np.ndarray, k: int) -> np.ndarray:
            start = time.perf_counter()
            candidates = search(queries, k)
            self.seconds.append(time.perf_counter() - start)
            return candidates

        return timed


def rounds(calls: Mapping[str, Callable[[], T]], repeats: int) -> dict[str, list[T]]:
    """Run all calls in `repeats` rounds after a warm-up round, and return each call's results.

    Each round begins one call later than the one before, since the first call of a round may be slower.
    """
    results: dict[str, list[T]] = {name: [] for name in calls}
    names = list(calls)
    for i in range(repeats + 1):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            result = calls[name]()
            if i:
                results[name].append(result)
    return results


def milliseconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def recall(sims: np.ndarray, exact: np.ndarray, k: int) -> float:
    """Recall at k: share of retrieved neighbours no farther than the true k-th, ties included (Aumüller et al. 2020).

    Args:
        sims, exact: similarities (B, K) of the retrieved and of the true neighbours, nearest first, K ≥ k.
    """
    return float((sims[:, :k] >= exact[:, k - 1 : k]).mean())


def _rows(name: dict[str, str], quantities: Mapping[str, Any]) -> Table:
    """Rows of name, quantity, and median (value), minimum (low), maximum (high) of numbers or of lists of numbers."""
    arrays = {quantity: np.atleast_1d(values) for quantity, values in quantities.items()}
    return [
        {**name, "quantity": quantity, "value": float(np.median(v)), "low": float(v.min()), "high": float(v.max())}
        for quantity, v in arrays.items()
    ]


def _timings(batched: list[float], singles: list[list[float]]) -> dict[str, list[float]]:
    p50, p99 = (list(np.quantile(singles, q, axis=1)) for q in (0.5, 0.99))
    return {"batched_ms": batched, "single_p50_ms": p50, "single_p99_ms": p99}


def _speedups(ms: Mapping[str, list[float]], exact: Sequence[str]) -> dict[str, list[float]]:
    """Speed of each index relative to the exact one of lowest median time, round by round."""
    fastest = ms[min(exact, key=lambda name: float(np.median(ms[name])))]
    return {name: [base / own for base, own in zip(fastest, values, strict=True)] for name, values in ms.items()}


def _sample(rows: np.ndarray, singles: int, seed: int) -> np.ndarray:
    """At most `singles` random rows, as batches of one row."""
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
    """Search flat L2, flat inner product, HNSW and IVF over the bank rows for the k (at least 10) nearest of test rows.

    Times are those of `Bank.search`, which re-ranks the candidates of the index; `index_ms` excludes re-ranking.

    Args:
        metric: of the similarities for recall and heads, and of HNSW and IVF: `l2` or `ip`.
        hnsw, ivf: their keyword arguments of `bank.build`.
        repeats: timed rounds, after a warm-up round.
        singles: test rows, sampled with the seed, that are searched one by one in each round.

    Returns:
        Rows of index (`flat_l2`, `flat_ip`, `hnsw`, `ivf`), quantity, value, low, high; and each index's neighbours of
        the test rows. Quantities: build_s (of one build), memory_mib (as a file), batched_ms and index_ms (per query,
        all test rows at once: median, minimum and maximum over the rounds), single_p50_ms and single_p99_ms (rows one
        by one), recall_at_10 and recall_at_k (see `recall`), exact (1 or 0), batched_speedup (of index_ms) and
        single_speedup (of single_p50_ms) relative to the fastest exact index in the same round, and IVF's nlist and
        nprobe.
    """
    rows, bank_rows = embeddings.rows(TEST), embeddings.rows(BANK)
    queries, vectors = np.asarray(embeddings.z)[rows], np.asarray(embeddings.z)[bank_rows]
    single_queries = np.asarray(embeddings.z)[_sample(rows, singles, seed)]  # (M, 1, D)
    k_search = min(max(k, NEAREST), len(bank_rows))
    banks, built = {}, {}
    for name, settings in {
        "flat_l2": {"kind": "flat", "metric": "l2"},
        "flat_ip": {"kind": "flat", "metric": "ip"},
        "hnsw": {"kind": "hnsw", "metric": metric, **hnsw},
        "ivf": {"kind": "ivf", "metric": metric, **ivf},
    }.items():
        start = time.perf_counter()
        bank = build(vectors, bank_rows, **settings)  # type: ignore[arg-type]
        built[name] = time.perf_counter() - start
        # Results of all indexes are sorted by the similarity that the heads were tuned with.
        banks[name] = replace(bank, metric=metric)
    neighbours: dict[str, Neighbours] = {}

    def search_batch(name: str) -> tuple[float, float]:
        stopwatch = _Stopwatch(**vars(banks[name].index))
        start = time.perf_counter()
        ids, sims = replace(banks[name], index=stopwatch).search(queries, k_search)
        total = time.perf_counter() - start
        neighbours[name] = Neighbours(rows.astype(np.int32), ids, sims, metric)
        return 1e3 * total / len(rows), 1e3 * sum(stopwatch.seconds) / len(rows)

    def search_singly(name: str) -> list[float]:
        return [milliseconds(partial(banks[name].search, query, k_search)) for query in single_queries]

    batched = rounds({name: partial(search_batch, name) for name in banks}, repeats)
    single = rounds({name: partial(search_singly, name) for name in banks}, repeats)
    true_sims = neighbours[f"flat_{metric}"].sims
    index_ms = {name: [ms for _, ms in times] for name, times in batched.items()}
    timings = {name: _timings([total for total, _ in batched[name]], single[name]) for name in banks}
    recalls = {
        name: [recall(neighbours[name].sims, true_sims, min(n, k_search)) for n in (NEAREST, k)] for name in banks
    }
    exact = [name for name in ("flat_l2", "flat_ip") if recalls[name][1] >= _EXACT]
    batched_speedups = _speedups(index_ms, exact)
    single_speedups = _speedups({name: timings[name]["single_p50_ms"] for name in banks}, exact)
    table: Table = []
    for name, bank in banks.items():
        quantities = {"build_s": built[name], "memory_mib": bank.n_bytes / 2**20, **timings[name]}
        quantities |= {"index_ms": index_ms[name], "recall_at_10": recalls[name][0], "recall_at_k": recalls[name][1]}
        quantities |= {"exact": float(name in exact), "batched_speedup": batched_speedups[name]}
        table += _rows({"index": name}, quantities | {"single_speedup": single_speedups[name]})
    lists = banks["ivf"].index.faiss_index
    return table + _rows({"index": "ivf"}, {"nlist": lists.nlist, "nprobe": lists.nprobe}), neighbours


def profile_heads(
    space: EmbeddingSpace, heads: Mapping[str, Head], k: int, repeats: int, singles: int, seed: int, device: str = "cpu"
) -> Table:
    """Time of each head per test row with k stored neighbours: gather, weight, vote.

    Args:
        heads: by name, `distance` among them, the reference of over_distance_ms.
        repeats, singles: as for `profile_indexes`.

    Returns:
        Rows of head, quantity, value, low, high: batched_ms, single_p50_ms and single_p99_ms as in `profile_indexes`,
        and over_distance_ms, the difference in batched_ms to `distance` in the same round.
    """
    rows = space.embeddings.rows(TEST)
    single_rows = _sample(rows, singles, seed)

    def classify_batch(head: Head) -> float:
        return milliseconds(lambda: classify(head, space, rows, k, device)) / len(rows)

    def classify_singly(head: Head) -> list[float]:
        return [milliseconds(partial(classify, head, space, row, k, device)) for row in single_rows]

    batched = rounds({name: partial(classify_batch, head) for name, head in heads.items()}, repeats)
    single = rounds({name: partial(classify_singly, head) for name, head in heads.items()}, repeats)
    table: Table = []
    for name in heads:
        difference = [a - b for a, b in zip(batched[name], batched["distance"], strict=True)]
        table += _rows({"head": name}, _timings(batched[name], single[name]) | {"over_distance_ms": difference})
    return table


def accuracy_lost(
    space: EmbeddingSpace,
    neighbours: Mapping[str, Neighbours],
    heads: Mapping[str, Head],
    k: int,
    scoring: Mapping[str, Any],
    seed: int,
    device: str = "cpu",
) -> Table:
    """Compare each head with the neighbours of each index to the same head with exact neighbours.

    Returns:
        Rows of index, method, metric, value, difference (value − value with exact neighbours), low, high, errors, p,
        test: see `intervals_and_tests`.
    """
    exact, rows = f"flat_{space.neighbours.metric}", space.embeddings.rows(TEST)
    probs = {
        f"{index}:{name}": classify(head, replace(space, neighbours=one), rows, k, device)
        for index, one in neighbours.items()
        for name, head in heads.items()
    }
    pairs = [(f"{index}:{name}", f"{exact}:{name}") for index in neighbours if index != exact for name in heads]
    predictions = as_predictions([space], TEST, probs)
    intervals, paired = intervals_and_tests(predictions, pairs, **scoring, seed=seed, metric_names=TESTED)
    values = {(row["method"], row["metric"]): row["value"] for row in intervals}
    table: Table = []
    for row in paired:
        name, metric, _ = (row.pop(key) for key in ("method", "metric", "baseline"))
        method, value = Method.parse(name), values[name, metric]
        table.append({"index": method.variant, "method": method.name, "metric": metric, "value": value, **row})
    return table


def machine() -> dict[str, str]:
    """Processor, cores, load (average of the last minute), system and versions, on which timings depend."""
    lines = _CPUS.read_text("utf-8").splitlines() if _CPUS.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        **({"GPU": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "nan",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "faiss": FAISS,
        "numpy": np.__version__,
        "torch": torch.__version__,
    }

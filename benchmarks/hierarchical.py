"""Hierarchical attention over the lists of an inverted file, beside flat attention and exhaustive search.

Made-up clustered rows × 128 of 100 classes, a tenth of the labels wrong. Centroids of the lists are the coarse level,
rows in the lists that a query reads the fine one: heads of 50 neighbours without features are fitted on 2,000 queries,
stopped by 1,000, and scored on 3,000 others. `recall` is the share of these neighbours that are no further than the
true 50th; `g, m` are the learned weights of the coarse level, 0 and 1 at the start, where both heads are the same;
with one list read all neighbours are of one region, and they always are. `nll − reference` is the difference from flat
attention on the same queries after exhaustive search, with its 95 % interval over queries; `ms` is the time of search
and head for a query, of 3,000 at once.
"""

import json
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, NeighbourStatistics
from attnknn.evaluation.metrics import scores
from attnknn.experiments.profile import milliseconds, recall
from attnknn.heads.classify import classify_part
from attnknn.heads.config import Parts, TrainAttention
from attnknn.heads.fit import fit_head
from attnknn.index.bank import build
from attnknn.neighbours.space import EmbeddingSpace
from benchmarks.synthetic import clusters

SIZES: dict[str, dict[str, Any]] = {
    "full": {"rows": (45_000, 1_000_000), "dim": 128, "queries": 6000, "k": 50, "probes": (1, 4, 16, 64)},
    "quick": {"rows": (3_000,), "dim": 32, "queries": 120, "k": 5, "probes": (2,)},
}
_GRIDS = {"temperatures": [0.01, 0.02, 0.05, 0.1, 0.2], "priors": [0.001, 0.01, 0.1]}


def measure(
    threads: int, repeats: int, rows: tuple[int, ...], dim: int, queries: int, k: int, probes: tuple[int, ...]
) -> list[dict[str, str | float]]:
    """A row per number of rows, search and head."""
    table: list[dict[str, str | float]] = []
    for n in rows:
        blocks = [*clusters(n, dim, seed=0), *clusters(queries, dim, seed=1)]
        z, y = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        z = z.astype(np.float32)
        part = np.full(n + queries, BANK, np.int8)
        part[n:] = np.repeat([FIT, VAL, TEST], [queries // 3, queries // 6, queries - queries // 3 - queries // 6])
        embeddings = Embeddings(z, y.astype(np.int64), part, tuple(map(str, range(100))))
        bank = build(z[:n], np.arange(n), "ivf", build_threads=threads)
        ivf = bank.index.faiss_index
        lists = np.concatenate([ivf.quantizer.search(z[s : s + 4096], 1)[1][:, 0] for s in range(0, len(z), 4096)])
        centroids = ivf.quantizer.reconstruct_n(0, ivf.nlist)
        truth = reference = None
        for name, searched in (
            ("exhaustive", build(z[:n], np.arange(n))),
            *((f"ivf, {p} lists", bank) for p in probes),
        ):
            if searched is bank:
                ivf.nprobe = int(name.split()[1])
            ids, sims = searched.search(z[n:], k)
            truth = sims if truth is None else truth
            statistics = NeighbourStatistics(*_blank(n + queries, dim), (k,))
            neighbours = Neighbours(np.arange(n, n + queries, dtype=np.int32), ids.astype(np.int32), sims, "l2")
            space = EmbeddingSpace(embeddings, neighbours, statistics)
            space.__dict__["regions"] = lists, centroids  # the index's instead of those of a k-means
            test = z[part == TEST]
            search_ms = np.median([milliseconds(partial(searched.search, test, k)) for _ in range(repeats)])
            for hierarchical in (False, True):
                parts = Parts(features=[], hierarchical=hierarchical)
                settings = TrainAttention(parts=parts).model_dump() | {"k_train": k, **_GRIDS, "seed": 0}
                head, _ = fit_head([space], **settings)
                coarse: Any = head
                head_ms = np.median(
                    [milliseconds(partial(classify_part, head, [space], TEST, k)) for _ in range(repeats)]
                )
                p, true = classify_part(head, [space], TEST, k), y[part == TEST]
                on_test, losses = scores(p, true), -np.log(p[np.arange(len(p)), true])
                reference = losses if reference is None else reference
                table.append(
                    {
                        "rows": n,
                        "lists": len(centroids),
                        "search": name,
                        "head": "hierarchical" if hierarchical else "flat",
                        "g, m": f"{coarse.region_gain.item():+.3f}, {coarse.region_mass.item():.3f}"
                        if hierarchical
                        else "",
                        "recall": recall(sims, truth, k),
                        "accuracy": on_test["accuracy"],
                        "nll": on_test["nll"],
                        "nll − reference": _interval(losses - reference),
                        "ms": float(search_ms + head_ms) / len(test),
                    }
                )
                print(json.dumps(table[-1]), flush=True)
    return table


def _interval(differences: np.ndarray) -> str:
    """Mean and normal 95 % interval."""
    mean, half = differences.mean(), 1.96 * differences.std(ddof=1) / len(differences) ** 0.5
    return f"{mean:+.4f} ({mean - half:+.4f} … {mean + half:+.4f})"


def _blank(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistics that no head here reads."""
    return np.zeros((rows, 1), np.float32), np.zeros(rows, np.float32), np.zeros((100, dim), np.float32)

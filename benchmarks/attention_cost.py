"""What attention costs per query over distance-weighted voting, neighbours already found.

Ten thousand queries of made-up embeddings (time does not depend on their values), by the forward path that `evaluate`
takes: gather, head, vote. Every method is timed in turn, round after round, so that what else the machine does falls on
all of them alike.

    python benchmarks/attention_cost.py [--rows 45000] [--dim 256] [--k 50] [--threads 2]

It prints a table, and writes the numbers to benchmarks/attention_cost.json, from where `make results` takes them.
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from attnknn.ablation import HISTORIC, NOTHING
from attnknn.artifacts import Embeddings, Evidence, Neighbours
from attnknn.classify import classify
from attnknn.files import write_json
from attnknn.heads import Attention, Distance
from attnknn.neighbourhood import Retrieved
from attnknn.retrieval import Retrieval

QUERIES, CLASSES, SIZES = 10_000, 10, (5, 20, 64)


def made_up(rows: int, dim: int, k: int, rng: np.random.Generator) -> Retrieved:
    """A bank of `rows` and QUERIES rows more, with random neighbours."""
    n = rows + QUERIES
    z = rng.standard_normal((n, dim), dtype=np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    part = np.zeros(n, dtype=np.int8)
    part[rows:] = 3
    ids = rng.integers(rows, size=(QUERIES, k), dtype=np.int32)
    sims = -np.sort(rng.random((QUERIES, k), dtype=np.float32), axis=1)
    agreement = rng.random((n, len(SIZES)), dtype=np.float32)
    density = -rng.random(n, dtype=np.float32)
    prototypes = rng.standard_normal((CLASSES, dim), dtype=np.float32)
    names = tuple("abcdefghij")
    return Retrieved(
        Embeddings(z, rng.integers(CLASSES, size=n), part, names),
        Neighbours(np.arange(rows, n, dtype=np.int32), ids, sims, "l2"),
        Evidence(agreement, density, prototypes, SIZES),
    )


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Time, print a Markdown table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("rows", 45_000), ("dim", 256), ("k", 50), ("threads", 2), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    rng = np.random.default_rng(0)
    data = made_up(a.rows, a.dim, a.k, rng)

    def attention(**parts: object) -> Attention:
        return Attention(a.dim, CLASSES, len(SIZES), 0.1, 0.01, **parts).eval()  # type: ignore[arg-type]

    default = yaml.safe_load((Path(__file__).parents[1] / "params.yaml").read_text("utf-8"))["train_attention"]["parts"]
    heads = {
        "distance": Distance(a.k, 0.1, 0.01),
        "attention (default parts)": attention(**default),
        "attention + self-attention": attention(**{**default, "self_attention": True}),
        "attention + l2 projection": attention(**{**default, "similarity": "l2"}),
        "the historic form, 4 heads of dot": attention(**{**NOTHING, **HISTORIC}),
        "retrieval": Retrieval(a.dim, CLASSES, 0.1, 0.01).eval(),
    }
    queries = np.arange(a.rows, a.rows + QUERIES)
    single = rng.choice(queries, 200, replace=False)[:, None]
    batched: dict[str, list[float]] = {name: [] for name in heads}
    one: dict[str, list[float]] = {name: [] for name in heads}
    for turn in range(a.rounds + 1):  # the first is warm-up
        for name, head in heads.items():
            times = [seconds(lambda h=head, q=q: classify(h, data, q, a.k)) for q in single]
            whole = seconds(lambda h=head: classify(h, data, queries, a.k)) / QUERIES
            if turn:
                batched[name].append(whole)
                one[name] += times
    rows = [
        {
            "head": name,
            "batched_ms_per_query": 1e3 * float(np.median(batched[name])),
            "batched_over_distance_ms": 1e3 * float(np.median(batched[name]) - np.median(batched["distance"])),
            "single_p50_ms": 1e3 * float(np.median(one[name])),
            "single_p99_ms": 1e3 * float(np.quantile(one[name], 0.99)),
        }
        for name in heads
    ]
    about = {"machine": platform.platform(), "torch": torch.__version__, "queries": QUERIES, **vars(a)}
    print("| head | batched, ms a query | over distance | single p50, ms | single p99, ms |\n|---|---|---|---|---|")
    for row in rows:
        values = [f"{value:.4f}" for value in list(row.values())[1:]]
        print(f"| {row['head']} | {' | '.join(values)} |")
    write_json(Path(__file__).with_suffix(".json"), {"about": about, "rows": rows})


if __name__ == "__main__":
    main()

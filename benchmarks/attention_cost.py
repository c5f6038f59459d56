"""Time per query of attention heads, neighbours given, compared with distance weighting.

Both take the forward path of `evaluate`: gather, head, vote. The peer is the head `distance`, so a ratio below 1 is
the cost of attention.
"""

from functools import partial

from attnknn.core.artifacts import TEST
from attnknn.experiments.ablation import HISTORIC, NOTHING
from attnknn.heads.attention import Attention, Head
from attnknn.heads.baselines import Distance
from attnknn.heads.classify import classify
from attnknn.heads.config import Parts
from attnknn.heads.tabr import TabR
from benchmarks.comparison import Row, compare, time_rounds, time_singles
from benchmarks.synthetic import CLASSES, random_space

SIZES = {
    "full": {"rows": 45_000, "dim": 256, "queries": 10_000, "k": 50, "singles": 200},
    "quick": {"rows": 500, "dim": 16, "queries": 100, "k": 5, "singles": 3},
}
STATISTICS, PEER = (5, 20, 64), "distance"  # neighbourhood sizes of the statistics


def heads(dim: int, k: int) -> dict[str, Head]:
    """Untrained heads, which cost what trained ones do."""

    def attention(**parts: object) -> Attention:
        return Attention(dim, CLASSES, len(STATISTICS), 0.1, 0.01, **parts).eval()  # type: ignore[arg-type]

    default = Parts().model_dump(exclude={"value"})
    return {
        PEER: Distance(k, 0.1, 0.01),
        "attention (default parts)": attention(**default),
        "attention + self-attention": attention(**{**default, "self_attention": True}),
        "attention + l2 projection": attention(**{**default, "similarity": "l2"}),
        "the historic form, 4 heads of dot": attention(**{**NOTHING, **HISTORIC}),
        "tabr": TabR(dim, CLASSES, 0.1, 0.01).eval(),
    }


def measure(threads: int, repeats: int, rows: int, dim: int, queries: int, k: int, singles: int) -> list[Row]:
    """Every head compared with `distance`: all queries at once, and single ones."""
    data = random_space(rows, queries, dim, k, STATISTICS)
    test = data.embeddings.rows(TEST)
    calls = {name: lambda ids, head=head: classify(head, data, ids, k) for name, head in heads(dim, k).items()}
    batched = time_rounds({name: partial(call, test) for name, call in calls.items()}, repeats, queries / 1e3)
    single = time_singles(calls, test[:singles, None], repeats)
    table: list[Row] = []
    for what, unit, times in (
        (f"{queries:,} queries at once, k {k}", "µs a query", batched),
        (f"a single query, p50, k {k}", "ms", single["p50"]),
        (f"a single query, p99, k {k}", "ms", single["p99"]),
    ):
        for name in calls:
            if name != PEER:
                table += compare(what, unit, {name: times[name], PEER: times[PEER]}, name)
    return table

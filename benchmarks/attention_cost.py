"""What attention costs a query over distance-weighted voting, neighbours already found.

By the forward path that `evaluate` takes: gather, head, vote. The peer is the head `distance`, so a ratio below 1 is
what attention costs.
"""

from functools import partial
from pathlib import Path

import yaml

from attnknn.core.artifacts import TEST
from attnknn.experiments.ablation import HISTORIC, NOTHING
from attnknn.heads.attention import Attention, Distance, Head
from attnknn.heads.classify import classify
from attnknn.heads.tabr import TabR
from benchmarks.compared import Row, compared, in_rounds, one_by_one
from benchmarks.made_up import CLASSES, retrieved

SIZES = {
    "full": {"rows": 45_000, "dim": 256, "queries": 10_000, "k": 50, "singles": 200},
    "quick": {"rows": 500, "dim": 16, "queries": 100, "k": 5, "singles": 3},
}
EVIDENCE, PEER = (5, 20, 64), "distance"
PARAMS = Path(__file__).parents[1] / "params.yaml"


def heads(dim: int, k: int) -> dict[str, Head]:
    """Untrained heads, which cost what trained ones do."""

    def attention(**parts: object) -> Attention:
        return Attention(dim, CLASSES, len(EVIDENCE), 0.1, 0.01, **parts).eval()  # type: ignore[arg-type]

    default = yaml.safe_load(PARAMS.read_text("utf-8"))["train_attention"]["parts"]
    return {
        PEER: Distance(k, 0.1, 0.01),
        "attention (default parts)": attention(**default),
        "attention + self-attention": attention(**{**default, "self_attention": True}),
        "attention + l2 projection": attention(**{**default, "similarity": "l2"}),
        "the historic form, 4 heads of dot": attention(**{**NOTHING, **HISTORIC}),
        "retrieval": TabR(dim, CLASSES, 0.1, 0.01).eval(),
    }


def measure(threads: int, repeats: int, rows: int, dim: int, queries: int, k: int, singles: int) -> list[Row]:
    """Every head beside `distance`: all queries at once, and single ones."""
    data, made = retrieved(rows, queries, dim, k, EVIDENCE), heads(dim, k)
    asked = data.embeddings.rows(TEST)
    together = in_rounds(
        {name: partial(classify, h, data, asked, k) for name, h in made.items()}, repeats, queries / 1e3
    )
    one = {name: lambda row, h=h: classify(h, data, row, k) for name, h in made.items()}
    alone = one_by_one(one, asked[:singles, None], repeats)
    table: list[Row] = []
    for what, unit, taken in (
        (f"{queries:,} queries at once, k {k}", "µs a query", together),
        (f"a single query, p50, k {k}", "ms", alone["p50"]),
        (f"a single query, p99, k {k}", "ms", alone["p99"]),
    ):
        for name in made:
            if name != PEER:
                table += compared(what, unit, {name: taken[name], PEER: taken[PEER]}, name)
    return table

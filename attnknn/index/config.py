"""Settings of the index."""

from typing import Annotated, Literal

from pydantic import Field

from attnknn.core.config import Block, Count, Whole


class BuildIndex(Block):
    # see `bank.build`; auto chooses flat, hnsw or ivfpq by the number of rows
    kind: Literal["flat", "hnsw", "ivf", "ivfpq", "auto"] = "flat"
    metric: Literal["l2", "ip"] = "l2"
    hnsw_m: Annotated[int, Field(ge=2)] = 32
    ef_construction: Count = 200
    ef_search: Count = 128
    ivf_nlist: Whole = 0  # at most one per 39 bank rows; 0 chooses by the number of rows
    ivf_nprobe: Whole = 0  # 0 chooses by the number of lists
    pq_bytes: Whole = 0  # per row in ivfpq; 0 chooses by the dimensions
    pq_refine: Count = 8  # candidates per neighbour that ivfpq re-ranks by exact distance
    build_threads: Count = 1  # above 1, HNSW is built faster and is not deterministic

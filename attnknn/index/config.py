"""Settings of the index."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, Whole


class BuildIndex(Block):
    # see `bank.build`; auto chooses flat, hnsw or ivfpq by the number of rows; lance is a table on disk or in s3://
    kind: Literal["flat", "hnsw", "ivf", "ivfpq", "auto", "lance"] = "flat"
    metric: Literal["l2", "ip"] = "l2"
    hnsw_m: Annotated[int, Field(ge=2)] = 32
    ef_construction: Count = 200
    ef_search: Count = 128
    ivf_nlist: Whole = 0  # at most one per 39 bank rows; 0 chooses by the number of rows
    ivf_nprobe: Whole = 0  # 0 chooses by the number of lists
    pq_bytes: Whole = 0  # per row in ivfpq; 0 chooses by the dimensions
    pq_refine: Count = 8  # candidates per neighbour that ivfpq re-ranks by exact distance
    build_threads: Count = 1  # above 1, HNSW is built faster and is not deterministic
    uri: str = ""  # folder or address of the tables of kind lance, <dataset>-<seed>.lance; empty: in models/bank
    version: Whole = 0  # of these tables, which must hold the rows; 0 writes them, or a new version

    @model_validator(mode="after")
    def _agree(self) -> "BuildIndex":
        if self.kind != "lance" and (self.uri or self.version):
            raise ValueError(f"uri and version: of tables of kind lance; kind is {self.kind}")
        if self.version and not self.uri:
            raise ValueError(f"version: {self.version} of which table? give its uri")
        return self

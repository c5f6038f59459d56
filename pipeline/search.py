"""Settings of exact search, for embeddings that have no stored index."""

from typing import Any

from attnknn.index.faiss_index import set_threads
from pipeline.run import Run


def search_settings(run: Run) -> dict[str, Any]:
    """Arguments of `neighbours.search.retrieve`; fixes the number of threads that faiss uses."""
    p = run.params
    set_threads(p.threads)
    return {"k_max": p.k_max, "sizes": p.statistics.sizes, "metric": p.build_index.metric, "device": run.device}

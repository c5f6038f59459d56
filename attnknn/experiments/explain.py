"""Examples of predictions with their neighbours, confusion of classes, and t-SNE of the embeddings of test rows."""

from pathlib import Path

from attnknn.core.artifacts import Predictions, Split
from attnknn.evaluation.confusion import confusion, shared_errors
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.config import Explain
from attnknn.experiments.gallery import gallery, save_gallery
from attnknn.experiments.tsne import tsne_table
from attnknn.heads.attention import Head
from attnknn.neighbours.space import EmbeddingSpace

COMPARED = ("attention", "distance_vector", "linear_temperature")


def explain(
    split: Split,
    space: EmbeddingSpace,
    heads: tuple[Head, Head],
    test: Predictions,
    k: int,
    settings: Explain,
    folder: Path,
    seed: int,
    device: str = "cpu",
) -> tuple[dict[str, dict[str, int]], dict[str, Table]]:
    """Write the gallery of attention and another head, and the t-SNE, into `folder`; return `shared_errors`, tables."""
    cases = gallery(split, space, *heads, test, k, settings.cases, settings.neighbours, device=device)
    save_gallery(*cases, tsne_table(space, test, settings.tsne_rows, settings.perplexity, seed), folder)
    methods = [name for name in COMPARED if name in test.methods]
    return shared_errors(test, methods), {"confusion": confusion(test, methods)}

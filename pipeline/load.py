"""Load what earlier stages stored: embedding spaces and heads."""

from attnknn.heads.registry import LearnedHead, load_head
from attnknn.neighbours.space import EmbeddingSpace
from pipeline.run import Run


def load_spaces(run: Run) -> list[EmbeddingSpace]:
    """The embedding space, and those of the cross-fitting folds."""
    return EmbeddingSpace.load_all(run.path("data/embeddings"), run.path("data/neighbours"))


def load_heads(run: Run, *names: str) -> dict[str, LearnedHead]:
    """Fitted heads by name."""
    return {name: load_head(run.path("models/attention") / name).to(run.device) for name in names}

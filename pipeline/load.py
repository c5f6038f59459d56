"""Load what earlier stages stored: embedding spaces, heads and peers."""

from attnknn.core.artifacts import PartProbs, PeerPredictions
from attnknn.heads.registry import LearnedHead, load_head
from attnknn.neighbours.space import EmbeddingSpace
from pipeline.run import Run


def load_spaces(run: Run) -> list[EmbeddingSpace]:
    """The embedding space, and those of the cross-fitting folds."""
    return EmbeddingSpace.load_all(run.path("data/embeddings"), run.path("data/neighbours"))


def load_heads(run: Run, *names: str) -> dict[str, LearnedHead]:
    """Fitted heads by name; all of `train_attention` without names."""
    folder = run.path("models/attention")
    names = names or tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
    return {name: load_head(folder / name).to(run.device) for name in names}


def load_peers(run: Run) -> PartProbs:
    """Probabilities of fit, val and test rows by other classifiers."""
    return PeerPredictions.load(run.path("data/peers")).by_method

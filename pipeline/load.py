"""Load what earlier stages stored: embedding spaces, heads and peers."""

from attnknn.core.artifacts import Predictions
from attnknn.core.files import read_json
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


def load_peers(run: Run) -> list[Predictions]:
    """Predictions of test and of val rows by other classifiers of tables; empty for images."""
    folder = run.path("data/peers")
    return [Predictions.load(folder / part) for part in read_json(folder / "peers.json")["parts"]]

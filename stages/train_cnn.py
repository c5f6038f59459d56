"""The encoder's backbone as a plain classifier: what the same network reaches without neighbours."""

from pathlib import Path

from attnknn.artifacts import Embeddings, Split
from attnknn.device import use_device
from attnknn.encoders import embed
from attnknn.files import write_csv, write_json
from attnknn.indexes import set_threads
from attnknn.training import summary
from stages.params import read_params, run
from stages.schema import Losses, TrainEmbedder
from stages.train_embedder import train

CLASSIFY = {**dict.fromkeys(Losses.model_fields, 0.0), "cross_entropy": 1.0}


def trained(
    data: Split, t: TrainEmbedder, seed: int, device: str, label: str, classify: bool, state: Path | None = None
) -> tuple[Embeddings, list]:
    """Every row embedded by an encoder trained on DATA, or by the same backbone trained to CLASSIFY; a row an epoch."""
    if classify:
        t = t.model_copy(update={"losses": Losses(**CLASSIFY), "embed_dim": 0})
    network, history = train(data, t, seed, device, label, state, "logits" if classify else "knn")
    z, logits = embed(network, data.x, device, t.bf16)
    return Embeddings(z, data.y, data.part, data.classes, logits), history


def best_network(
    data: Split, choices: list[TrainEmbedder], label_smoothing: float, seed: int, device: str, label: str
) -> Embeddings:
    """Plain networks trained on DATA by each of CHOICES; the one of best validation accuracy."""
    smoothed = [t.model_copy(update={"label_smoothing": label_smoothing}) for t in choices]
    made = [trained(data, t, seed, device, label, classify=True) for t in smoothed]
    return max(made, key=lambda one: summary(one[1])[0]["val_accuracy"])[0]


def main(dataset: str, seed: int, split: Path, state: Path, out: Path, metrics: Path, curve: Path) -> None:
    """Read SPLIT; write features and logits to OUT, METRICS and the training CURVE; STATE is for resuming."""
    p = read_params(dataset, "train_cnn", "train_embedder", "device", "threads")
    t = p.train_embedder.model_copy(update={"label_smoothing": p.train_cnn.label_smoothing})
    set_threads(p.threads)
    device = use_device(p.device, p.threads)
    made, history = trained(Split.load(split), t, seed, device, f"train_cnn {dataset}/{seed}", True, state)
    made.save(out)
    best, rows = summary(history)
    write_json(metrics, best)
    write_csv(curve, rows)
    state.unlink(missing_ok=True)


if __name__ == "__main__":
    run(main)

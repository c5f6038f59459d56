"""The encoder's backbone as a plain classifier, without neighbours; an encoder trained as one is that network."""

from pathlib import Path

from attnknn.core.artifacts import Embeddings, Split
from attnknn.core.device import use_device
from attnknn.core.files import write_csv, write_json
from attnknn.encoder.encoder import Encoder, embed_split
from attnknn.encoder.train import judged_by_logits, summary
from attnknn.index.faiss_index import set_threads
from stages.params import read_params, run
from stages.schema import Losses, TrainEmbedder
from stages.train_embedder import train


def classifier(t: TrainEmbedder) -> TrainEmbedder:
    """The settings under which an encoder is a plain classifier: cross-entropy alone, on the backbone's features."""
    losses = Losses(**dict.fromkeys(Losses.model_fields, 0.0) | {"cross_entropy": 1.0})
    return t.model_copy(update={"losses": losses, "embed_dim": 0})


def trained(
    data: Split, t: TrainEmbedder, seed: int, device: str, label: str, classify: bool, state: Path | None = None
) -> tuple[Embeddings, list]:
    """Every row embedded by an encoder trained on DATA, or by the same backbone trained to CLASSIFY; a row an epoch."""
    t = classifier(t) if classify else t
    network, history = train(data, t, seed, device, label, state, "logits" if classify else "knn")
    return embed_split(network, data, device, t.bf16), history


def best_network(data: Split, choices: list[TrainEmbedder], seed: int, device: str, label: str) -> Embeddings:
    """Plain networks trained on DATA by each of CHOICES; the one of best validation accuracy."""
    made = [trained(data, t, seed, device, label, classify=True) for t in choices]
    return max(made, key=lambda one: summary(one[1])[0]["val_accuracy"])[0]


def main(
    dataset: str, seed: int, split: Path, encoder: Path, state: Path, out: Path, metrics: Path, curve: Path
) -> None:
    """Read SPLIT, ENCODER; write features and logits to OUT, METRICS and the training CURVE; STATE is for resuming."""
    p = read_params(dataset, "train_embedder", "device", "threads")
    set_threads(p.threads)
    data, device, t = Split.load(split), use_device(p.device, p.threads), p.train_embedder
    if t == classifier(t):
        network, about = Encoder.load(encoder)
        made = embed_split(network, data, device, t.bf16)
        history = [about["kept"] | judged_by_logits(made)]
    else:
        made, history = trained(data, t, seed, device, f"train_cnn {dataset}/{seed}", True, state)
    made.save(out)
    best, rows = summary(history)
    write_json(metrics, best)
    write_csv(curve, rows)
    state.unlink(missing_ok=True)


if __name__ == "__main__":
    run(main)

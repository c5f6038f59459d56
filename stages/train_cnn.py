"""The encoder's backbone as a plain classifier: what the same network reaches without neighbours."""

from pathlib import Path

from attnknn.artifacts import Embeddings, Split
from attnknn.bank import set_threads
from attnknn.device import use_device
from attnknn.encoders import embed
from attnknn.files import write_csv, write_json
from attnknn.training import summary
from stages.params import Losses, read_params, run
from stages.train_embedder import train

CLASSIFY = {**dict.fromkeys(Losses.model_fields, 0.0), "cross_entropy": 1.0}


def main(dataset: str, seed: int, split: Path, state: Path, out: Path, metrics: Path, curve: Path) -> None:
    """Read SPLIT; write features and logits to OUT, METRICS and the training CURVE; STATE is for resuming."""
    p = read_params(dataset, "train_cnn", "train_embedder", "device", "threads")
    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    data = Split.load(split)
    plain = {"losses": Losses(**CLASSIFY), "label_smoothing": p.train_cnn.label_smoothing, "embed_dim": 0}
    t = p.train_embedder.model_copy(update=plain)
    network, history = train(data, t, seed, device, f"train_cnn {dataset}/{seed}", state, "logits")
    z, logits = embed(network, data.x, device, t.bf16)
    Embeddings(z, data.y, data.part, data.classes, logits).save(out)
    best, rows = summary(history)
    write_json(metrics, best)
    write_csv(curve, rows)
    state.unlink(missing_ok=True)


if __name__ == "__main__":
    run(main)

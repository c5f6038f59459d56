"""Train the encoder on the bank rows; keep the epoch of best validation kNN accuracy. A killed run goes on."""

from pathlib import Path

import torch

from attnknn.core.artifacts import BANK, Split
from attnknn.core.device import use_device
from attnknn.core.files import write_csv, write_json
from attnknn.core.progress import epoch_progress
from attnknn.encoder.encoder import Encoder
from attnknn.encoder.losses import EncoderLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.numeric_embeddings import fit_numeric
from attnknn.encoder.train import best_epoch, summary, train_encoder
from attnknn.index.faiss_index import set_threads
from stages.params import read_params, run
from stages.schema import TrainEmbedder

LOSS = {"label_smoothing", "supcon_temperature", "proxy_margin", "proxy_alpha", "contrastive_margin"}
VOTES = {"knn", "entropy", "calibration"}  # the terms on neighbours' votes
NETWORK = {"pretrained", "widths", "depth", "embed_dim", "dropout", "flip_average"}
NOT_LOOP = {"encoder", "losses", "knn", "numeric"} | NETWORK | LOSS


def train(
    data: Split, t: TrainEmbedder, seed: int, device: str, bar: str, state: Path | None, judge: str = "knn"
) -> tuple[Encoder, list]:
    """An encoder trained on the bank rows of DATA by the settings T, and a row an epoch; BAR names the progress bar."""
    torch.manual_seed(seed)
    c, votes, neighbours = len(data.classes), t.losses.model_dump(include=VOTES), None
    network, bank = t.model_dump(include=NETWORK), data.part == BANK
    network["numeric"] = {} if data.is_image else fit_numeric(data.x[bank], **t.numeric.model_dump())
    encoder = Encoder(t.encoder, data.x.shape[1:], c if t.losses.cross_entropy else 0, **network)
    loss = EncoderLoss(c, encoder.dim, **t.losses.model_dump(exclude=VOTES), **t.model_dump(include=LOSS))
    if any(votes.values()):
        votes |= {**t.knn.model_dump(), "label_smoothing": t.label_smoothing}
        neighbours = NeighbourLoss(data.y[bank], c, encoder.dim, **votes)
    rest = {"neighbours": neighbours, "seed": seed, "device": device, "judged_by": judge, "resume": state}
    with epoch_progress(bar, t.epochs) as show:
        return encoder, train_encoder(data, encoder, loss, **t.model_dump(exclude=NOT_LOOP), **rest, progress=show)


def main(dataset: str, seed: int, split: Path, state: Path, out: Path, metrics: Path, curve: Path) -> None:
    """Read SPLIT; write the encoder to OUT, METRICS and the training CURVE; STATE is the place to resume from."""
    p = read_params(dataset, "train_embedder", "device", "threads")
    set_threads(p.threads)
    data, device, label = Split.load(split), use_device(p.device, p.threads), f"train_embedder {dataset}/{seed}"
    encoder, history = train(data, p.train_embedder, seed, device, label, state)
    about = {"classes": list(data.classes), "schema": data.schema, "bf16": p.train_embedder.bf16}
    encoder.save(out, **about, kept=best_epoch(history))
    best, rows = summary(history)
    write_json(metrics, best)
    write_csv(curve, rows)
    state.unlink(missing_ok=True)


if __name__ == "__main__":
    run(main)

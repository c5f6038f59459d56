"""Embed bank rows by encoders that did not see them, and search exactly, fold by fold: queries to fit and tune on."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from attnknn.core.artifacts import Embeddings, Split
from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder
from attnknn.encoder.crossfit import fold_splits
from attnknn.encoder.encoder import embed
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run
from stages.train_embedder import train


def folds(
    data: Split, p: SimpleNamespace, seed: int, device: str, label: str, refit: bool = False
) -> Iterator[EmbeddingSpace]:
    """The bank rows of DATA as queries, or with REFIT all but test rows, fold by fold; nothing where folds is 0."""
    splits = fold_splits(data, p.crossfit.folds, seed, refit) if p.crossfit.folds else []
    for fold, held in enumerate(splits):
        encoder, _ = train(held, p.train_embedder, seed, device, f"{label} {fold + 1}/{len(splits)}", None)
        z, logits = embed(encoder, held.x, device, p.train_embedder.bf16)
        e = Embeddings(z, held.y, held.part, held.classes, logits)
        yield retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device)


def main(dataset: str, seed: int, split: Path, out: Path) -> None:
    """Read SPLIT; write a folder a fold, of embeddings, neighbours and evidence, to OUT; no folder where folds is 0."""
    p = read_params(dataset, "crossfit", "train_embedder", "build_index", "evidence", "k_max", "device", "threads")
    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    with atomic_folder(out) as draft:
        EmbeddingSpace.save_folds(folds(Split.load(split), p, seed, device, f"crossfit {dataset}/{seed}"), draft)


if __name__ == "__main__":
    run(main)

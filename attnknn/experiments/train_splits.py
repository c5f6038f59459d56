"""Train all methods on one split of a small table: encoder, folds, their embedding spaces, and peers."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.core.artifacts import TEST, Predictions, Split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnknn.encoder.config import TrainEmbedder


def train_split(
    split: Split,
    settings: "TrainEmbedder",
    search: "Mapping[str, Any]",
    refit: bool,
    peers: "Sequence[str]",
    tries: int,
    seed: int,
    out: Path,
) -> None:
    """Write the spaces `space` and `folds`, those for test rows (`larger_bank`, `members`), and predictions `peers`.

    Args:
        search: k_max, sizes, metric, device of `retrieve`.
        refit: for test rows, add fit and val rows to the bank, and train the encoders of the folds and the peers on
            them too.
        peers, tries: of `peers.table_peers`.
        out: folder to write to.
    """
    # torch is imported here: without splits, the stage takes no time.
    from attnknn.encoder.crossfit import fold_embeddings
    from attnknn.encoder.fit import fit_and_embed
    from attnknn.experiments.peers import table_peers
    from attnknn.index.faiss_index import set_threads
    from attnknn.neighbours.search import retrieve, with_larger_bank
    from attnknn.neighbours.space import EmbeddingSpace

    set_threads(1)
    device = search["device"]
    embeddings, _ = fit_and_embed(split, settings, seed, device, f"split {seed}")
    larger = with_larger_bank if refit else retrieve
    retrieve(embeddings, **search).save(out / "space")
    larger(embeddings, **search).save(out / "larger_bank")
    folds = list(fold_embeddings(split, settings, seed, device, f"split {seed}, fold"))
    EmbeddingSpace.save_folds((retrieve(fold, **search) for fold in folds), out / "folds")
    label = f"split {seed}, refit"
    members = fold_embeddings(split, settings, seed, device, label, refit=True) if refit else folds
    members = (larger(replace(member, part=embeddings.part), **search) for member in members)
    EmbeddingSpace.save_folds(members, out / "members")
    if peers:
        probs, _ = table_peers(split, peers, tries=tries, seed=seed, threads=1, refit=refit)
        rows, on_test = split.rows(TEST), np.stack([test for _, _, test in probs.values()])
        Predictions(rows.astype(np.int32), split.y[rows], on_test, tuple(probs), split.classes).save(out / "peers")

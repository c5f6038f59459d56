"""Train encoders on wrong labels, as they are and cleaned, and plain networks; for the seeds of noise.train_seeds."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from attnknn.core.artifacts import BANK, Split
from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.corruption import NETWORK, with_wrong_labels
from attnknn.experiments.label_cleaning import clean_in_rounds, quality
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run
from stages.train_cnn import best_network, trained


def train_all(seed: int, rate: float, split: Path, p: SimpleNamespace, label: str, out: Path) -> None:
    """Write to OUT the spaces `plain` and `cleaned`, what plain networks make of both labels, and how cleaning went."""
    # Encoders stop before they learn wrong labels by heart; of a plain network the length that is best on val is kept.
    full, true, device = p.train_embedder, Split.load(split), use_device(p.device, p.threads)
    short = full.model_copy(update={"epochs": max(1, round(p.noise.train_share * full.epochs))})
    set_threads(p.threads)
    data = with_wrong_labels(true, rate, p.noise.train_kind, np.random.default_rng(seed))

    def embed(of: Split, number: int = 0) -> EmbeddingSpace:
        e, _ = trained(of, short, seed, device, f"{label}, round {number}", classify=False)
        return retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device)

    plain = embed(data)
    plain.save(out / "plain")
    cleaned, found = clean_in_rounds(data, plain, embed, p.evidence.sizes, p.noise.train_rounds)
    cleaned.save(out / "cleaned")
    for net, y in ((NETWORK, data.y), (f"{NETWORK}_cleaned", found[-1])):
        of, item = dataclasses.replace(data, y=y), f"{label}, {net}"
        best_network(of, [short, full], seed, device, item).save(out / net)
    rounds = [quality(*(labels[data.rows(BANK)] for labels in (true.y, data.y, y))) for y in found]
    write_json(out / "cleaning.json", {"rounds": rounds})


def main(dataset: str, seed: int, rate: float, split: Path, out: Path) -> None:
    """Read SPLIT; write what was trained with a share RATE of wrong labels to OUT."""
    p = read_params(
        dataset, "noise.train_kind", "noise.train_rounds", "noise.train_share", "train_embedder",
        "build_index", "evidence", "k_max", "device", "threads",
    )  # fmt: skip
    with atomic_folder(out) as draft:
        train_all(seed, rate, split, p, f"train_noise {dataset}/{seed} {rate}", draft)


if __name__ == "__main__":
    run(main)

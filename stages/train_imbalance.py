"""Train encoders on rare classes: as the others are, and by cross-entropy alone; for imbalance.train_seeds."""

from pathlib import Path

import numpy as np

from attnknn.core.artifacts import Split
from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder
from attnknn.experiments.corruption import NETWORK, with_rare_classes
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import retrieve
from stages.params import read_params, run
from stages.train_cnn import trained


def main(dataset: str, seed: int, ratio: float, split: Path, out: Path) -> None:
    """Read SPLIT; write to OUT what was trained with a rarest class of RATIO of the largest."""
    # fmt: off
    p = read_params(
        dataset, "imbalance.train_kind", "train_embedder", "build_index", "evidence", "k_max", "device", "threads",
    )
    # fmt: on
    kind, t, label = p.imbalance.train_kind, p.train_embedder, f"train_imbalance {dataset}/{seed} {ratio}"
    data = with_rare_classes(Split.load(split), ratio, kind, np.random.default_rng(seed))
    set_threads(p.threads)
    device = use_device(p.device, p.threads)
    with atomic_folder(out) as draft:
        e, _ = trained(data, t, seed, device, label, classify=False)
        retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device).save(draft / "plain")
        trained(data, t, seed, device, f"{label}, {NETWORK}", classify=True)[0].save(draft / NETWORK)


if __name__ == "__main__":
    run(main)

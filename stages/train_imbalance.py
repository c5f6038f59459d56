"""Train encoders on rare classes: as the others are, and by cross-entropy alone; if imbalance.train is true."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from attnknn.files import new_folder, write_json
from stages.params import Losses, read_params, run

if TYPE_CHECKING:
    from attnknn.artifacts import Embeddings, Split


def embeddings(data: "Split", seed: int, p: SimpleNamespace, label: str, classify: bool = False) -> "Embeddings":
    """Train an encoder on DATA, or the same backbone by cross-entropy alone where CLASSIFY, and embed every row."""
    from attnknn.artifacts import Embeddings  # here, as all that needs torch: to train nothing takes no time
    from attnknn.bank import set_threads
    from attnknn.device import use_device
    from attnknn.encoders import embed
    from stages.train_cnn import CLASSIFY
    from stages.train_embedder import train

    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    t = p.train_embedder.model_copy(update={"losses": Losses(**CLASSIFY), "embed_dim": 0} if classify else {})
    encoder, _ = train(data, t, seed, device, label, None, "logits" if classify else "knn")
    z, logits = embed(encoder, data.x, device, t.bf16)
    return Embeddings(z, data.y, data.part, data.classes, logits)


def train_all(seed: int, ratio: float, split: Path, p: SimpleNamespace, label: str, out: Path) -> None:
    """Write the space `plain` and the embeddings `cross_entropy` to OUT."""
    from attnknn.artifacts import Split
    from attnknn.corrupted import NETWORK, with_rare_classes
    from attnknn.device import use_device
    from attnknn.gather import retrieve

    data = with_rare_classes(Split.load(split), ratio, "long_tail", np.random.default_rng(seed))
    e, device = embeddings(data, seed, p, label), use_device(p.device, p.threads)
    retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device).save(out / "plain")
    embeddings(data, seed, p, f"{label}, {NETWORK}", classify=True).save(out / NETWORK)


def main(dataset: str, seed: int, ratio: float, split: Path, out: Path) -> None:
    """Read SPLIT; write what was trained with a rarest class of RATIO of the largest to OUT, or that nothing was."""
    p = read_params(
        dataset, "imbalance.train", "train_embedder", "build_index", "evidence", "k_max", "device", "threads"
    )
    with new_folder(out) as draft:
        write_json(draft / "trained.json", {"trained": p.imbalance.train})
        if p.imbalance.train:
            train_all(seed, ratio, split, p, f"train_imbalance {dataset}/{seed} {ratio}", draft)
        else:
            print(f"train_imbalance {dataset}/{seed} {ratio}: imbalance.train is false; nothing is trained")


if __name__ == "__main__":
    run(main)

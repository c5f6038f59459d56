"""Train encoders on rare classes: as the others are, and by cross-entropy alone; if imbalance.train is true."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from attnknn.files import new_folder, write_json
from stages.params import read_params, run


def train_all(seed: int, ratio: float, split: Path, p: SimpleNamespace, label: str, out: Path) -> None:
    """Write the space `plain` and the embeddings `cross_entropy` to OUT."""
    # What needs torch is imported here: with nothing to train, as by default, the stage takes no time.
    from attnknn.artifacts import Split
    from attnknn.corrupted import NETWORK, with_rare_classes
    from attnknn.device import use_device
    from attnknn.gather import retrieve
    from attnknn.indexes import set_threads
    from stages.train_cnn import trained

    kind, t = p.imbalance.train_kind, p.train_embedder
    data = with_rare_classes(Split.load(split), ratio, kind, np.random.default_rng(seed))
    set_threads(p.threads)
    device = use_device(p.device, p.threads)
    e, _ = trained(data, t, seed, device, label, classify=False)
    retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device).save(out / "plain")
    trained(data, t, seed, device, f"{label}, {NETWORK}", classify=True)[0].save(out / NETWORK)


def main(dataset: str, seed: int, ratio: float, split: Path, out: Path) -> None:
    """Read SPLIT; write what was trained with a rarest class of RATIO of the largest to OUT, or that nothing was."""
    # fmt: off
    p = read_params(
        dataset, "imbalance.train", "imbalance.train_kind", "train_embedder", "build_index", "evidence",
        "k_max", "device", "threads",
    )
    # fmt: on
    with new_folder(out) as draft:
        write_json(draft / "trained.json", {"trained": p.imbalance.train})
        if p.imbalance.train:
            train_all(seed, ratio, split, p, f"train_imbalance {dataset}/{seed} {ratio}", draft)
        else:
            print(f"train_imbalance {dataset}/{seed} {ratio}: imbalance.train is false; nothing is trained")


if __name__ == "__main__":
    run(main)

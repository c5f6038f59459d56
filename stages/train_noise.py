"""Train encoders on wrong labels: as they are, cleaned by neighbours, and by cross-entropy alone; if noise.train."""

from pathlib import Path
from types import SimpleNamespace

from attnknn.files import new_folder, write_json
from stages.params import read_params, run


def train_all(seed: int, rate: float, split: Path, p: SimpleNamespace, label: str, out: Path) -> None:
    """Write the spaces `plain` and `cleaned`, the embeddings `cross_entropy` and how cleaning went to OUT."""
    # What needs torch is imported here: with nothing to train, as by default, the stage takes no time.
    import numpy as np

    from attnknn.artifacts import BANK, Split
    from attnknn.bank import set_threads
    from attnknn.cleaning import clean_in_rounds, quality
    from attnknn.corrupted import NETWORK, with_wrong_labels
    from attnknn.device import use_device
    from attnknn.gather import retrieve
    from attnknn.neighbourhood import Retrieved
    from stages.train_cnn import trained

    epochs = max(1, round(p.noise.train_share * p.train_embedder.epochs))  # the same for all that are compared
    t, device = p.train_embedder.model_copy(update={"epochs": epochs}), use_device(p.device, p.threads)
    set_threads(p.threads)
    true = Split.load(split)
    data = with_wrong_labels(true, rate, p.noise.train_kind, np.random.default_rng(seed))

    def embed(of: Split, number: int = 0) -> Retrieved:
        e, _ = trained(of, t, seed, device, f"{label}, round {number}", classify=False)
        return retrieve(e, p.k_max, p.evidence.sizes, p.build_index.metric, device)

    plain = embed(data)
    plain.save(out / "plain")
    cleaned, found = clean_in_rounds(data, plain, embed, p.evidence.sizes, p.noise.train_rounds)
    cleaned.save(out / "cleaned")
    trained(data, t, seed, device, f"{label}, {NETWORK}", classify=True)[0].save(out / NETWORK)
    rounds = [quality(*(labels[data.rows(BANK)] for labels in (true.y, data.y, y))) for y in found]
    write_json(out / "trained.json", {"trained": True, "cleaning": rounds})


def main(dataset: str, seed: int, rate: float, split: Path, out: Path) -> None:
    """Read SPLIT; write what was trained with a share RATE of wrong labels to OUT, or that nothing was."""
    # fmt: off
    p = read_params(
        dataset, "noise.train", "noise.train_kind", "noise.train_rounds", "noise.train_share", "train_embedder",
        "build_index", "evidence", "k_max", "device", "threads",
    )
    # fmt: on
    with new_folder(out) as draft:
        if p.noise.train:
            train_all(seed, rate, split, p, f"train_noise {dataset}/{seed} {rate}", draft)
        else:
            write_json(draft / "trained.json", {"trained": False})
            print(f"train_noise {dataset}/{seed} {rate}: noise.train is false; nothing is trained")


if __name__ == "__main__":
    run(main)

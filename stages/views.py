"""Embed the views of the held-out images, and find each view's nearest bank rows; a table has no views."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from attnknn.core.artifacts import Split
from attnknn.neighbours.views import View, held_out, save_views
from stages.params import read_params, run


def seen(
    data: Split, encoder: Path, bank: Path, p: SimpleNamespace, item: tuple[str, int]
) -> Iterator[tuple[str, View]]:
    """Each view of the held-out images by its name, embedded and searched."""
    # What needs torch is imported here: a table has no views, and the stage takes no time.
    import torch
    from tqdm import tqdm

    from attnknn.core.device import use_device
    from attnknn.encoder.encoder import Encoder
    from attnknn.experiments.image_views import images_of, see
    from attnknn.index.bank import Bank
    from attnknn.index.faiss_index import set_threads

    dataset, seed = item
    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    model, about = Encoder.load(encoder)
    memory, rows = Bank.load(bank, mmap=True), held_out(data.part)
    total = int(p.tta.flip) + p.tta.crops
    made = images_of(torch.from_numpy(np.asarray(data.x[rows])), **p.tta.model_dump(), seed=seed)
    for name, x in tqdm(made, f"views {dataset}/{seed}", total, unit="view", delay=2, disable=None):
        yield name, see(model, x.numpy(), rows, memory, p.k_max, device, about["bf16"])


def main(dataset: str, seed: int, split: Path, encoder: Path, bank: Path, out: Path) -> None:
    """Read SPLIT, ENCODER and BANK; write the views to OUT."""
    p = read_params(dataset, "tta", "k_max", "device", "threads")
    data = Split.load(split)
    found = seen(data, encoder, bank, p, (dataset, seed)) if data.is_image else iter(())
    if not save_views(found, out):
        reason = "tta.flip and tta.crops ask for none" if data.is_image else "a table has none"
        print(f"views {dataset}/{seed}: no views, since {reason}")


if __name__ == "__main__":
    run(main)

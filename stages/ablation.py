"""Ablation of the attention head: each part removed, added, and alone."""

from pathlib import Path

from tqdm import tqdm

from attnknn.core.device import n_workers, use_device
from attnknn.core.files import write_csv
from attnknn.experiments.ablation import ablate
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, table: Path) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE and FOLDS; write TABLE."""
    p = read_params(dataset, "ablation", "train_attention", "tune", "evaluate", "k_train", "device", "threads")
    device = use_device(p.device, p.threads)
    with tqdm(desc=f"ablation {dataset}/{seed}", unit="head", delay=2, disable=None) as bar:
        rows = ablate(
            [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)],
            p.ablation.repeats,
            k=p.k_train,
            fitting=p.train_attention.model_dump(),
            grids=p.tune.model_dump(),
            scoring=p.evaluate.model_dump() | {"resamples": p.ablation.resamples},
            seed=seed,
            device=device,
            workers=n_workers(device, p.threads),
            progress=lambda _: bar.update(),
        )
    write_csv(table, rows)


if __name__ == "__main__":
    run(main)

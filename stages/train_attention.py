"""Fit the attention head on fit rows; stop early by the NLL on val rows."""

from pathlib import Path

import torch
from tqdm import tqdm

from attnknn.artifacts import Embeddings, Neighbours
from attnknn.device import use_device
from attnknn.files import write_csv, write_json
from attnknn.fitting import fit_head
from stages.params import read_params, run


def main(dataset: str, seed: int, embeddings: Path, neighbours: Path, out: Path, metrics: Path, curve: Path) -> None:
    """Read EMBEDDINGS and NEIGHBOURS; write the head to OUT, METRICS and the training CURVE."""
    p = read_params(dataset, "train_attention", "tune", "k_train", "device", "threads")
    device = use_device(p.device, p.threads)
    torch.manual_seed(seed)
    with tqdm(
        total=p.train_attention.epochs, desc=f"train_attention {dataset}/{seed}", unit="epoch", delay=2, disable=None
    ) as bar:

        def progress(row: dict[str, float]) -> None:
            bar.update()
            bar.set_postfix(val_nll=f"{row['val_nll']:.4f}")

        head, history = fit_head(
            Embeddings.load(embeddings),
            Neighbours.load(neighbours),
            **p.train_attention.model_dump(),
            k_train=p.k_train,
            temperatures=p.tune.temperature,
            priors=p.tune.prior,
            seed=seed,
            device=device,
            progress=progress,
        )
    best = min(history, key=lambda row: row["val_nll"])
    head.save(out)
    start = {key: head.config[key] for key in ("temperature", "prior")}
    ends = {"best_epoch": best["epoch"], "fit_nll": best["fit_nll"], "val_nll": best["val_nll"]}
    write_json(metrics, {**ends, "val_nll_start": history[0]["val_nll"], **start})
    write_csv(curve, history)


if __name__ == "__main__":
    run(main)

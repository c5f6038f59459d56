"""Fit the attention head on fit rows, stopped early by the NLL on val rows; and class prototypes alone beside it."""

from pathlib import Path

from tqdm import tqdm

from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder, write_csv, write_json
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.heads.registry import save_head
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    folds: Path,
    out: Path,
    metrics: Path,
    curve: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE and FOLDS; write the heads to OUT, METRICS and the training CURVE."""
    p = read_params(dataset, "train_attention", "tune", "k_train", "device", "threads")
    t = p.train_attention
    device = use_device(p.device, p.threads)
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    with tqdm(desc=f"train_attention {dataset}/{seed}", unit="epoch", delay=2, disable=None) as bar:

        def progress(row: dict[str, float]) -> None:
            bar.update()
            bar.set_postfix(val_nll=f"{row['val_nll']:.4f}")

        settings = t.model_dump() | {"temperatures": p.tune.temperatures, "priors": p.tune.priors, "seed": seed}
        head, history = fit_head(spaces, **settings, k_train=p.k_train, device=device, progress=progress)
    with atomic_folder(out) as draft:
        save_head(head, draft / "attention")
        save_head(fit_prototypes(spaces, p.tune.ridges, device), draft / "prototypes")
    best = min(history, key=lambda row: row["val_nll"])
    start = {key: head.config[key] for key in ("temperature", "prior")}
    ends = {"restart": best["restart"], "best_epoch": best["epoch"], "val_nll": best["val_nll"]}
    write_json(metrics, {**ends, "val_nll_start": history[0]["val_nll"], **start})
    kept = [row for row in history if row["restart"] == best["restart"]]
    write_csv(curve, [{key: row[key] for key in ("epoch", "fit_loss", "val_nll")} for row in kept])


if __name__ == "__main__":
    run(main)

"""Scores of every method at each k: baselines tuned, attention fitted anew at each."""

from pathlib import Path

from tqdm import tqdm

from attnknn.core.artifacts import BANK
from attnknn.core.device import n_workers, use_device
from attnknn.core.files import write_csv, write_json
from attnknn.experiments.k_sweep import root, sweep, swept_ks
from attnknn.heads.registry import load_head
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    folds: Path,
    heads: Path,
    out: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, FOLDS, HEADS; write predictions to OUT, the rest to METRICS and PLOTS."""
    p = read_params(dataset, "k_sweep", "train_attention", "tune", "evaluate", "device", "threads")
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    device, stored = use_device(p.device, p.threads), min(one.neighbours.ids.shape[1] for one in spaces)
    bank = len(spaces[0].embeddings.rows(BANK))
    ks = swept_ks(p.k_sweep.ks, bank, stored)
    left_out = sorted({*p.k_sweep.ks, root(bank)} - set(ks))
    if left_out:
        print(f"k_sweep {dataset}/{seed}: without k {', '.join(map(str, left_out))}, above the {stored} stored")
    with tqdm(total=len(ks), desc=f"k_sweep {dataset}/{seed}", unit="k", delay=2, disable=None) as bar:
        result = sweep(
            spaces,
            ks,
            {"prototypes": load_head(heads / "prototypes").to(device)},
            p.train_attention.model_dump(),
            p.tune.model_dump(),
            p.evaluate.model_dump() | {"resamples": p.k_sweep.resamples},
            seed,
            device,
            lambda _: bar.update(),
            n_workers(device, p.threads),
        )
    result.predictions.save(out)
    write_json(metrics, result.best)
    for name, table in (("k_sweep", result.table), ("k_sweep_paired", result.paired)):
        write_csv(plots / name / f"{dataset}-{seed}.csv", table)


if __name__ == "__main__":
    run(main)

"""Wrong labels in the memory: heads fitted anew, baselines tuned anew, on the same embeddings."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from tqdm import tqdm

from attnknn.core.device import n_workers, use_device
from attnknn.core.files import write_csv, write_json
from attnknn.evaluation.paired_tests import BASE
from attnknn.experiments.corruption import noise_conditions, with_noise
from attnknn.experiments.refit import Make, under_conditions
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def study(
    stage: str, conditions: Mapping[str, Make], repeats: int, p: SimpleNamespace, item: tuple[str, int], out: list[Path]
) -> None:
    """Fit and compare under each condition; write METRICS, and tables under PLOTS."""
    dataset, seed = item
    metrics, plots = out
    total, device = len(conditions) * repeats, use_device(p.device, p.threads)
    with tqdm(total=total, desc=f"{stage} {dataset}/{seed}", unit="head", delay=2, disable=None) as bar:
        settings = {"k_train": p.k_train, "k_eval": p.k_eval, "device": device, "workers": n_workers(device, p.threads)}
        settings |= {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump()}
        scoring = p.evaluate.model_dump()
        means, tables = under_conditions(conditions, repeats, scoring, seed, lambda _: bar.update(), **settings)
    write_json(metrics, {c: {m: of[m] for m in of if m in BASE} for c, of in means.items()})
    for table, folder in (("intervals", stage), ("paired", f"{stage}_paired"), ("validation", f"{stage}_validation")):
        write_csv(plots / folder / f"{dataset}-{seed}.csv", tables[table])


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, metrics: Path, plots: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE and FOLDS; write METRICS, and tables under PLOTS."""
    # fmt: off
    p = read_params(
        dataset, "noise.kinds", "noise.rates", "noise.repeats", "train_attention", "tune", "evaluate", "k_train",
        "k_eval", "device", "threads",
    )
    # fmt: on
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    found = noise_conditions(p.noise.kinds, p.noise.rates)
    conditions = {name: partial(with_noise, spaces, rate, kind=kind) for name, (kind, rate) in found.items()}
    study("noise", conditions, p.noise.repeats, p, (dataset, seed), [metrics, plots])


if __name__ == "__main__":
    run(main)

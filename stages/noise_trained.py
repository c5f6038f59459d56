"""Compare all methods on clean test rows, where all else was trained, fitted and tuned on wrong labels."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnknn.core.artifacts import Embeddings
from attnknn.core.device import use_device
from attnknn.core.files import read_json, write_csv, write_json
from attnknn.experiments.corruption import noise_conditions
from attnknn.experiments.trained_on_corruption import NETWORKS, as_scores, under_noise
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run

AT = ("condition", "rate")
SCORES = ("variant", "method", "metric", "value", "low", "high")
_WHO = ("variant", "method", "baseline_variant", "baseline", "metric")
PAIRED = (*_WHO, "difference", "low", "high", "errors", "p", "test")


def settings(p: SimpleNamespace, seed: int) -> dict[str, Any]:
    """Keyword arguments of `trained_on.under_noise` and `under_imbalance`."""
    ks = {"k_train": p.k_train, "k_eval": p.k_eval, "device": use_device(p.device, p.threads), "seed": seed}
    grids = {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump()}
    return ks | grids | {"scoring": vars(p.evaluate)}


def main(dataset: str, seed: int, trained: Path, metrics: Path, plots: Path) -> None:
    """Read a folder a rate in TRAINED; write METRICS, and tables under PLOTS."""
    # fmt: off
    p = read_params(
        dataset, "noise.train_kind", "noise.train_rates", "train_attention", "tune", "evaluate.bins",
        "evaluate.resamples", "evaluate.confidence", "k_train", "k_eval", "device", "threads",
    )
    # fmt: on
    scores, scored, paired, cleaning = {}, [], [], []
    for name, (_, rate) in noise_conditions([p.noise.train_kind], p.noise.train_rates).items():
        folder, at = trained / str(rate), {"condition": name, "rate": rate}
        plain, cleaned = (EmbeddingSpace.load_whole(folder / variant) for variant in ("plain", "cleaned"))
        networks = {variant: Embeddings.load(folder / variant) for variant in NETWORKS}
        found = under_noise(plain, cleaned, networks, **settings(p, seed))
        scores[name] = as_scores(found[0])
        for table, rows in zip((scored, paired), found, strict=True):
            table += [{**at, **row} for row in rows]
        for i, of_round in enumerate(read_json(folder / "cleaning.json")["rounds"], 1):
            cleaning += [{**at, "round": i, "quantity": what, "value": value} for what, value in of_round.items()]
    write_json(metrics, scores)
    write_csv(plots / "noise_trained" / f"{dataset}-{seed}.csv", scored, (*AT, *SCORES))
    write_csv(plots / "noise_trained_paired" / f"{dataset}-{seed}.csv", paired, (*AT, *PAIRED))
    write_csv(plots / "cleaning" / f"{dataset}-{seed}.csv", cleaning, (*AT, "round", "quantity", "value"))


if __name__ == "__main__":
    run(main)

"""What every method says over repeated splits of a table of few rows: means, deviations, and tests between methods."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

from tqdm import tqdm

from attnknn.core.artifacts import Predictions
from attnknn.core.files import read_json, write_csv
from attnknn.experiments.repeats import COLUMNS, PAIRED, over_splits
from stages.params import read_params, run


def one(folder: Path, seed: int, p: SimpleNamespace, device: str) -> Predictions:
    """What every method says of the test rows of the split in FOLDER."""
    # What needs torch is imported here and below: where nothing was split anew, the stage takes no time.
    from attnknn.evaluation.evaluate import together
    from attnknn.experiments.refit import fit_and_compare
    from attnknn.neighbours.space import EmbeddingSpace

    spaces = [EmbeddingSpace.load_whole(folder / "space"), *EmbeddingSpace.load_folds(folder / "folds")]
    asked = {
        "memory": EmbeddingSpace.load_whole(folder / "asked"),
        "members": EmbeddingSpace.load_folds(folder / "members"),
    }
    fitting, grids = p.train_attention.model_dump(), p.tune.model_dump()
    made = fit_and_compare(spaces, p.k_train, p.k_eval, fitting, grids, seed, device, **asked)
    peers = folder / "peers"
    return together(made.test, Predictions.load(peers)) if peers.is_dir() else made.test


def main(dataset: str, splits: Path, plots: Path) -> None:
    """Read SPLITS; write what they amount to to PLOTS, empty where the data was not split anew."""
    p = read_params(dataset, "train_attention", "tune", "evaluate", "k_eval", "k_train", "device", "threads")
    about, table, paired = read_json(splits / "splits.json"), [], []
    if about["seeds"]:
        from attnknn.core.device import n_workers, use_device
        from attnknn.core.parallel import run_parallel

        device = use_device(p.device, p.threads)
        calls = [partial(one, splits / str(seed), seed, p, device) for seed in about["seeds"]]
        done = run_parallel(calls, n_workers(device, p.threads))
        bar = tqdm(done, f"splits {dataset}", len(calls), unit="split", delay=2, disable=None)
        found = dict(zip(about["seeds"], bar, strict=True))
        table, paired = over_splits(found, about["rows"], p.evaluate.bins, p.evaluate.confidence)
    write_csv(plots / "splits" / f"{dataset}.csv", table, COLUMNS)
    write_csv(plots / "splits_paired" / f"{dataset}.csv", paired, PAIRED)


if __name__ == "__main__":
    run(main)

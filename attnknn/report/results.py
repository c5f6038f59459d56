"""What the stages wrote, read for the report: named files of named datasets and seeds, never a folder's listing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from attnknn.errors import InputError
from attnknn.files import read_json

_METRICS = {
    "prepare": "prepare",
    "train_embedder": "train_embedder",
    "train_attention": "train_attention",
    "evaluate": "evaluate",
    "tuned": "evaluate",
}
_PLOTS = {
    "training": ("train_embedder", ("epoch", "loss", "val_accuracy")),
    "attention": ("train_attention", ("epoch", "fit_nll", "val_nll")),
    "reliability": ("evaluate", ("method", "low", "high", "count", "confidence", "accuracy")),
    "intervals": ("evaluate", ("method", "metric", "value", "low", "high")),
    "paired": ("evaluate", ("method", "baseline", "metric", "difference", "low", "high", "errors", "p", "test")),
}


@dataclass(frozen=True)
class Run:
    """One dataset and seed: JSON by file name (`prepare`, `tuned`, …) and tables by folder name (`paired`, …)."""

    dataset: str
    seed: int
    json: dict[str, Any]
    tables: dict[str, pd.DataFrame]


def _found(path: Path, stage: str, dataset: str, seed: int) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file; make it with `dvc repro {stage}@{dataset}-{seed}`")
    return path


def _read_csv(path: Path, columns: Sequence[str], item: str) -> pd.DataFrame:
    mend = f"make it again with `dvc repro --force --single-item {item}`"
    try:
        table = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no valid CSV ({' '.join(str(error).split())}); {mend}") from None
    missing = [c for c in columns if c not in table.columns]
    if missing or table.empty:
        what = f"no column {', '.join(missing)}" if missing else "no rows"
        raise InputError(f"{path}: {what}; {mend}")
    return table


def read_runs(metrics: Path, plots: Path, datasets: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Read every dataset and seed, datasets first.

    Raises:
        InputError: a file is missing or damaged; the line names it and the command that makes it.
    """
    runs = []
    for dataset in datasets:
        for seed in seeds:
            folder = Path(metrics) / dataset / str(seed)
            values = {
                name: read_json(_found(folder / f"{name}.json", stage, dataset, seed))
                for name, stage in _METRICS.items()
            }
            tables = {}
            for name, (stage, columns) in _PLOTS.items():
                path = _found(Path(plots) / name / f"{dataset}-{seed}.csv", stage, dataset, seed)
                tables[name] = _read_csv(path, columns, f"{stage}@{dataset}-{seed}")
            runs.append(Run(dataset, seed, values, tables))
    return runs


def joined(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """One table of several runs, with `dataset` and `seed` as its first columns."""
    return pd.concat(
        [
            pd.DataFrame({"dataset": r.dataset, "seed": r.seed}, r.tables[table].index).join(r.tables[table])
            for r in runs
        ],
        ignore_index=True,
    )

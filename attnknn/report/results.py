"""What the stages wrote, read for the report: named files of named datasets and seeds, never a folder's listing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from attnknn.core.errors import InputError
from attnknn.core.files import read_json

_METRICS = {
    "prepare": "prepare",
    "train_embedder": "train_embedder",
    "train_attention": "train_attention",
    "evaluate": "evaluate",
    "tuned": "evaluate",
    "headroom": "evaluate",
}
_SCORE = ("method", "metric", "value")
_PAIRED = ("method", "baseline", "metric", "difference", "low", "high", "errors", "p", "test")
_PLOTS = {
    "training": ("train_embedder", ("epoch", "loss", "val_accuracy")),
    "attention": ("train_attention", ("epoch", "fit_loss", "val_nll")),
    "reliability": ("evaluate", ("method", "low", "high", "count", "confidence", "accuracy")),
    "intervals": ("evaluate", (*_SCORE, "low", "high")),
    "validation": ("evaluate", _SCORE),
    "paired": ("evaluate", _PAIRED),
}
# Tables of all seeds of a dataset, by the stage that makes them; its last run has them.
OF_SEEDS, OF_SPLITS, SPLITS_PAIRED = "ensemble_seeds", "splits", "splits_paired"
_OF_DATASET = (
    (OF_SEEDS, OF_SEEDS, ("source", *_SCORE)),
    (OF_SPLITS, OF_SPLITS, (*_SCORE, "splits", "sd", "low", "high")),
    (SPLITS_PAIRED, OF_SPLITS, ("baseline", "metric", "difference", "sd", "low", "high", "p")),
)
_RUN = ("condition", "repeat")
CONDITIONS = ("noise", "imbalance")  # stages that put the memory under conditions
CLEAN = "clean"  # the condition of evaluate's own rows
UNCHANGED = "noise 0.0"  # the same memory
Wanted = Mapping[str, Mapping[str, Sequence[str]]]  # stage → table → columns
UNDER: Wanted = {
    name: {
        name: (*_RUN, *_SCORE, "low", "high"),
        f"{name}_paired": (*_RUN, *_PAIRED),
        f"{name}_validation": (*_RUN, *_SCORE),
    }
    for name in CONDITIONS
}


@dataclass(frozen=True)
class Run:
    """One dataset and seed: JSON by file name (`prepare`, `tuned`, …) and tables by folder name (`paired`, …).

    Those of the experiments are there where their stages ran and had something to do for the dataset.
    """

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
        # "None" and "NA" are names here; only an empty cell is no value.
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no valid CSV ({' '.join(str(error).split())}); {mend}") from None
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise InputError(f"{path}: no column {', '.join(missing)}; {mend}")
    return table


def read_runs(
    metrics: Path,
    plots: Path,
    datasets: Sequence[str],
    seeds: Sequence[int],
    experiments: Wanted,
    evaluated: bool = True,
) -> list[Run]:
    """Read every dataset and seed, datasets first.

    Args:
        experiments: stages that may not have run. Where one of a stage's files is there, all of them must be. A table
            of theirs that has only a header is left out: that stage had nothing to do. Their own metrics are read
            where there are some.
        evaluated: whether `evaluate` and what it needs ran; else only the sizes and the experiments are read.

    Raises:
        InputError: a file is missing or damaged; the line names it and the command that makes it.
    """
    runs = []
    for dataset in datasets:
        for seed in seeds:
            folder, item = Path(metrics) / dataset / str(seed), f"{dataset}-{seed}.csv"
            values = {
                name: read_json(_found(folder / f"{name}.json", stage, dataset, seed))
                for name, stage in _METRICS.items()
                if evaluated or name == "prepare"
            }
            for stage in experiments:
                if (folder / f"{stage}.json").is_file():
                    values[stage] = read_json(folder / f"{stage}.json")
            needed = _PLOTS if evaluated else {}
            wanted = {name: (stage, columns, False) for name, (stage, columns) in needed.items()}
            for stage, files in experiments.items():
                if any((Path(plots) / name / item).is_file() for name in files):
                    wanted |= {name: (stage, columns, True) for name, columns in files.items()}
            tables = {}
            for name, (stage, columns, may_be_empty) in wanted.items():
                path = _found(Path(plots) / name / item, stage, dataset, seed)
                again = f"{stage}@{dataset}-{seed}"
                table = _read_csv(path, columns, again)
                if not table.empty:
                    tables[name] = table
                elif not may_be_empty:
                    raise InputError(f"{path}: no rows; make it again with `dvc repro --force --single-item {again}`")
            runs.append(Run(dataset, seed, values, tables))
        for name, stage, columns in _OF_DATASET:
            path = Path(plots) / name / f"{dataset}.csv"
            if path.is_file():
                table = _read_csv(path, columns, f"{stage}@{dataset}")
                if not table.empty:
                    runs[-1].tables[name] = table
    return runs


def joined(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """One table of those runs that have it, with `dataset` and `seed` as its first columns; empty if none has."""
    found = [
        pd.DataFrame({"dataset": r.dataset, "seed": r.seed}, r.tables[table].index).join(r.tables[table])
        for r in runs
        if table in r.tables
    ]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def everywhere(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """`paired`, `validation` or `intervals` under every condition, with condition and repeat.

    Clean is what evaluate found, as repeat 0, and with it what the heads of noise 0 found. Datasets keep their order,
    and each has its conditions together.
    """
    under = [name if table == "intervals" else f"{name}_{table}" for name in CONDITIONS]
    parts = [
        joined(of, name).assign(**({"condition": CLEAN, "repeat": 0} if name == table else {}))
        for of in ([r for r in runs if r.dataset == d] for d in dict.fromkeys(r.dataset for r in runs))
        for name in (table, *under)
        if any(name in r.tables for r in of)
    ]
    table_of_all = pd.concat(parts, ignore_index=True)
    again = table_of_all["condition"] == UNCHANGED
    table_of_all.loc[again, "repeat"] += 1
    table_of_all.loc[again, "condition"] = CLEAN
    return table_of_all

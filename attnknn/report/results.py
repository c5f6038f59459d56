"""Read the metrics and plot tables of given datasets and seeds; files of other datasets are ignored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.evaluation.opponents import COLUMNS

_METRICS = ("prepare", "train_embedder", "train_attention", "evaluate", "calibration", "tuned", "headroom")
_SCORE = ("method", "metric", "value")
_PLOTS = {
    "training": ("epoch", "loss", "val_accuracy"),
    "attention": ("epoch", "fit_loss", "val_nll"),
    "reliability": ("method", "low", "high", "count", "confidence", "accuracy"),
    "intervals": COLUMNS,
}
# Tables over all seeds of a dataset, stored with its last run.
SEED_ENSEMBLE, SPLITS, SPLITS_PAIRED = "ensemble_seeds", "splits", "splits_paired"
_DATASET_TABLES = {
    SEED_ENSEMBLE: ("source", *_SCORE),
    SPLITS: (*_SCORE, "splits", "sd", "low", "high"),
    SPLITS_PAIRED: ("baseline", "metric", "difference", "sd", "low", "high", "p"),
}
CONDITIONS = ("noise", "imbalance")  # stages that evaluate on a modified bank
CLEAN = "clean"  # the condition of evaluate's own rows
UNCHANGED = "noise 0.0"  # the same bank as CLEAN
Columns = Mapping[str, Mapping[str, Sequence[str]]]  # stage → table → columns
CONDITION_TABLES: Columns = {name: {name: ("condition", *COLUMNS)} for name in CONDITIONS}


@dataclass(frozen=True)
class Run:
    """Results of one dataset and seed: JSON by file name (`prepare`, `tuned`, …), tables by folder name (`paired`, …).

    Experiments that were not run, or had nothing to do for the dataset, have no table.
    """

    dataset: str
    seed: int
    json: dict[str, Any]
    tables: dict[str, pd.DataFrame]


def _require_file(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file; run `dvc repro`")
    return path


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table; raise InputError if it is missing or damaged, or lacks a column."""
    try:
        # "None" and "NA" are names here; only an empty cell is a missing value.
        table = pd.read_csv(_require_file(path), keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no valid CSV ({error}); run `dvc repro`") from None
    if "role" in table:
        table["role"] = table["role"].fillna("")
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise InputError(f"{path}: no column {', '.join(missing)}; run `dvc repro`")
    return table


def read_runs(
    metrics: Path,
    plots: Path,
    datasets: Sequence[str],
    seeds: Sequence[int],
    experiments: Columns,
    evaluated: bool = True,
) -> list[Run]:
    """Read every dataset and seed, datasets first.

    Args:
        experiments: optional stages, with the columns of their tables. Where one file of a stage exists, all must.
            A table without rows is left out: the stage had nothing to do. Their metrics are read where they exist.
        evaluated: whether `evaluate` and its inputs ran; else only the sizes and the experiments are read.

    Raises:
        InputError: a file is missing or damaged.
    """
    runs = []
    for dataset in datasets:
        for seed in seeds:
            folder = Path(metrics) / dataset / str(seed)
            values = {
                name: read_json(_require_file(folder / f"{name}.json"))
                for name in (_METRICS if evaluated else _METRICS[:1])
            }
            for stage in experiments:
                if (folder / f"{stage}.json").is_file():
                    values[stage] = read_json(folder / f"{stage}.json")
            paths = {name: Path(plots) / name / f"{dataset}-{seed}.csv" for name in _PLOTS if evaluated}
            columns = dict(_PLOTS)
            for stage_tables in experiments.values():
                stored = {name: Path(plots) / name / f"{dataset}-{seed}.csv" for name in stage_tables}
                if any(path.is_file() for path in stored.values()):
                    paths, columns = paths | stored, {**columns, **stage_tables}
            tables = {name: read_csv(path, columns[name]) for name, path in paths.items()}
            for name, table in tables.items():
                if table.empty and name in _PLOTS:
                    raise InputError(f"{paths[name]}: no rows; run `dvc repro`")
            runs.append(Run(dataset, seed, values, {name: table for name, table in tables.items() if len(table)}))
        for name, expected in _DATASET_TABLES.items():
            path = Path(plots) / name / f"{dataset}.csv"
            if path.is_file() and not (table := read_csv(path, expected)).empty:
                runs[-1].tables[name] = table
    return runs


def joined(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """One table of the runs that have it, with `dataset` and `seed` as first columns; empty if none has."""
    frames = [
        pd.DataFrame({"dataset": r.dataset, "seed": r.seed}, r.tables[table].index).join(r.tables[table])
        for r in runs
        if table in r.tables
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def all_conditions(runs: Sequence[Run]) -> pd.DataFrame:
    """`intervals` under every condition of the bank, with the column condition; clean holds the rows of `evaluate`.

    Datasets keep their order, and each has its conditions together. Noise 0 is left out.
    """
    rows = pd.concat(
        [
            joined(group, name).assign(**({"condition": CLEAN} if name == "intervals" else {}))
            for group in ([r for r in runs if r.dataset == d] for d in dict.fromkeys(r.dataset for r in runs))
            for name in ("intervals", *CONDITIONS)
            if any(name in r.tables for r in group)
        ],
        ignore_index=True,
    )
    return rows[rows["condition"] != UNCHANGED]


def mean_over_runs(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """By keys: value (mean) and sd over runs, and the outer ends low and high of the runs' intervals."""
    return rows.groupby(list(keys), sort=False).agg(
        value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max")
    )

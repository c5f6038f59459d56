"""Read the metrics and tables of given datasets and seeds; files of others are ignored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.evaluation.opponents import OURS

CLEAN = "clean"  # the condition of evaluate's own rows
WRONG = "noise of all labels 0.4"  # the condition beside CLEAN in the first table
UNCHANGED = "noise 0.0"  # the same bank as CLEAN
FEWEST_ERRORS = 20  # test rows that either method gets wrong; with fewer no test is reliable


@dataclass(frozen=True)
class Run:
    """Results of one dataset and seed: JSON and tables by file name; those of experiments that did not run are absent.

    Attributes:
        pictures: folder of `gallery` and `field_pictures`.
    """

    dataset: str
    seed: int
    json: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    pictures: Path = Path("data/pictures")

    @cached_property
    def digits(self) -> int:
        """Digits of scores: the standard error of an accuracy is above .0035 below 5,000 test rows."""
        return 4 if self.json["prepare"]["test"] >= 5000 else 3

    @cached_property
    def kept_start(self) -> bool:
        """Whether no epoch lowered the NLL of the attention head on val rows by 1e-4, as in `heads.fit.kept_start`."""
        val_nll = self.tables["attention"]["val_nll"] if "attention" in self.tables else pd.Series([1.0, 0.0])
        return bool(val_nll.min() > val_nll.iloc[0] - 1e-4)

    def folder(self, name: str) -> Path:
        return self.pictures / name / f"{self.dataset}-{self.seed}"


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        # "None" and "NA" are names here; only an empty cell is a missing value.
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no valid CSV ({error}); run `dvc repro`") from None
    return table.fillna({"role": ""}) if "role" in table else table


def read_runs(
    root: Path, datasets: Sequence[str], seeds: Sequence[int], required: Sequence[str] = ("intervals",)
) -> list[Run]:
    """Read every dataset and seed, datasets first; tables without rows are left out.

    Args:
        root: holds metrics/, plots/ and data/. Tables over all seeds of a dataset belong to its last run.
        required: tables that must be there.

    Raises:
        InputError: a file is missing or damaged.
    """
    runs = []
    for dataset in datasets:
        for seed in seeds:
            json = {
                path.stem: read_json(path) for path in sorted((root / "metrics" / dataset / str(seed)).glob("*.json"))
            }
            tables = {path.parent.name: path for path in root.glob(f"plots/*/{dataset}-{seed}.csv")}
            tables |= {path.stem: path for path in root.glob(f"data/results/*/{dataset}/{seed}/*.csv")}
            if seed == seeds[-1]:
                tables |= {path.stem: path for path in root.glob(f"data/results/*/{dataset}/*.csv")}
            read = {name: table for name, path in sorted(tables.items()) if len(table := _read_csv(path))}
            missing = [*({"prepare"} - set(json)), *(set(required) - set(read))]
            if missing:
                raise InputError(f"{dataset}, seed {seed}: no results of {', '.join(missing)}; run `dvc repro`")
            runs.append(Run(dataset, seed, json, read, root / "data/pictures"))
    return runs


def joined(runs: Sequence[Run], table: str, ours: str = OURS) -> pd.DataFrame:
    """One table of the runs that have it, with `dataset`, `seed` and `digits` as first columns; empty if none has.

    Of a table of comparisons, those of the role `ours`, see `opponents.compare_with_opponents`.
    """
    frames = [
        r.tables[table].assign(dataset=r.dataset, seed=r.seed, digits=r.digits) for r in runs if table in r.tables
    ]
    frames = [frame[frame.pop("ours") == ours] if "ours" in frame else frame for frame in frames]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def by_dataset(runs: Sequence[Run], table: str) -> dict[str, list[Run]]:
    """The runs that have a table, by dataset."""
    names = dict.fromkeys(run.dataset for run in runs if table in run.tables)
    return {name: [run for run in runs if run.dataset == name and table in run.tables] for name in names}


def by_nll(runs: Sequence[Run], ours: str = OURS) -> pd.DataFrame:
    """Of attention and the opponents of each run that are chosen by the NLL: role, method, and all their scores."""
    rows = joined(runs, "intervals", ours).query("role != '' and metric == 'nll'")[["role", "method", "seed"]]
    scores = {run.seed: run.json["evaluate"] for run in runs}
    own = [scores[row.seed][row.method] for row in rows.itertuples()]  # type: ignore[index]
    return pd.concat([rows.reset_index(drop=True), pd.DataFrame(own)], axis=1)


def all_conditions(runs: Sequence[Run], ours: str = OURS) -> pd.DataFrame:
    """`intervals` under every condition of the bank, with the column condition; clean holds the rows of `evaluate`.

    Datasets keep their order, and each has its conditions together. Noise 0 is left out, and so is p below
    `FEWEST_ERRORS`.
    """
    frames = [
        joined(group, name, ours).assign(**({"condition": CLEAN} if name == "intervals" else {}))
        for group in by_dataset(runs, "intervals").values()
        for name in ("intervals", "noise", "imbalance")
        if any(name in run.tables for run in group)
    ]
    rows = pd.concat(frames, ignore_index=True)
    rows["p"] = rows["p"].where(rows["errors"] >= FEWEST_ERRORS)
    return rows[rows["condition"] != UNCHANGED]


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that compare with another method: low and high are those of the difference, not of the score."""
    rows = rows[rows["difference"].notna()].drop(columns=["low", "high"])
    return rows.rename(columns={"difference_low": "low", "difference_high": "high"})

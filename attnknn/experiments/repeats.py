"""Mean scores over repeated splits of one dataset, and paired differences by the corrected resampled t-test."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.evaluation.paired_tests import BASE, FOLDS, TESTED, Table, scores

COLUMNS = ("method", "metric", "splits", "value", "sd", "low", "high")
PAIRED = ("method", "baseline", "metric", "splits", "difference", "sd", "low", "high", "p")
OURS = ("attention", "attention-folds")
_METHODS = (*BASE[:4], *FOLDS, *BASE[4:])  # in the order of the table


def corrected_t_test(
    values: Sequence[float] | np.ndarray, test_to_train: float, confidence: float
) -> tuple[float, float, float, float, float]:
    """Corrected resampled t-test (Nadeau & Bengio 2003): t = x̄ / √((1/J + n_test/n_train)·s²), J − 1 degrees.

    The term n_test/n_train allows for the rows that the splits share.

    Args:
        values: J ≥ 2, one a split.
        test_to_train: test rows over training rows of one split.

    Returns:
        The mean, its standard deviation, the ends of its confidence interval, and the p-value against 0.
    """
    from scipy import stats  # takes a second

    x = np.asarray(values, dtype=np.float64)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    error = sd * math.sqrt(1 / len(x) + test_to_train)
    if error < 1e-12:
        return mean, sd, mean, mean, 1.0 if abs(mean) < 1e-12 else 0.0
    half = float(stats.t.ppf((1 + confidence) / 2, len(x) - 1)) * error
    return mean, sd, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, len(x) - 1))


def over_splits(predictions: Mapping[int, Predictions], rows: int, bins: int, confidence: float) -> tuple[Table, Table]:
    """Mean scores of every method over the splits, and paired differences of the methods in `OURS` to all others.

    Args:
        predictions: of the test rows, by split; two or more.
        rows: of the dataset, test rows included.
        bins: of the ECE.

    Returns:
        Rows of `COLUMNS` and of `PAIRED`, for the methods of `BASE` and `FOLDS` that every split has.
    """
    by_split = [scores(split, bins) for split in predictions.values()]
    test_rows = float(np.mean([len(split.y) for split in predictions.values()]))
    settings = test_rows / (rows - test_rows), confidence
    names = [name for name in _METHODS if all(name in scored for scored in by_split)]
    values = {
        (name, metric): np.array([scored[name][metric] for scored in by_split]) for name in names for metric in TESTED
    }
    table: Table = [
        dict(zip(COLUMNS, (*key, len(predictions), *corrected_t_test(x, *settings)[:4]), strict=True))
        for key, x in values.items()
    ]
    paired: Table = []
    for own, ((name, metric), x) in product([name for name in OURS if name in names], values.items()):
        if name != own:
            test = corrected_t_test(values[own, metric] - x, *settings)
            paired.append(dict(zip(PAIRED, (own, name, metric, len(predictions), *test), strict=True)))
    return table, paired


def compare_split(
    folder: Path, seed: int, k: int, fitting: Mapping[str, Any], grids: Mapping[str, Any], device: str
) -> Predictions:
    """Predictions of every method for the test rows of the split that `train_split` wrote to `folder`."""
    # torch is imported here: without splits, the stage takes no time.
    from attnknn.evaluation.evaluate import stack_methods
    from attnknn.experiments.refit import fit_and_compare
    from attnknn.neighbours.space import EmbeddingSpace

    spaces = [EmbeddingSpace.load_whole(folder / "space"), *EmbeddingSpace.load_folds(folder / "folds")]
    memory, members = EmbeddingSpace.load_whole(folder / "larger_bank"), EmbeddingSpace.load_folds(folder / "members")
    test = fit_and_compare(spaces, k, fitting, grids, seed, device, memory=memory, members=members).test
    peers = folder / "peers"
    return stack_methods(test, Predictions.load(peers)) if peers.is_dir() else test

"""Rank correlation between readouts: whether kNN and probes order representations alike."""

from collections.abc import Sequence
from math import factorial

import numpy as np
from jaxtyping import Float
from scipy.stats import permutation_test, rankdata

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import Table

_MAX_ITEMS = 8  # of an exact test: 8! = 40,320 permutations


def spearman(a: Float[np.ndarray, "*R n"], b: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "*R"]:
    """Spearman's ρ along the last axis, row by row; NaN where all values of a row are tied."""
    a, b = (rankdata(x, axis=-1) for x in (a, b))
    a, b = (ranks - ranks.mean(-1, keepdims=True) for ranks in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def exact_p(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Exact two-sided permutation test of Spearman's ρ; of 5 items p is at least 1/60.

    Raises:
        InputError: too many items for an exact test.
    """
    require(len(a) <= _MAX_ITEMS, f"exact_p: {len(a)} items; at most {_MAX_ITEMS}")

    def statistic(permuted: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.abs(spearman(permuted, b)).round(9)  # equal values of ρ differ by rounding errors

    options = {"permutation_type": "pairings", "vectorized": True, "n_resamples": factorial(_MAX_ITEMS)}
    test = permutation_test((a,), statistic, **options, alternative="greater")
    return float(test.pvalue)


def agreements(
    predictions: Predictions,
    groups: Sequence[tuple[str, Sequence[str]]],
    pairs: Sequence[tuple[str, str]],
    resamples: int,
    confidence: float,
    seed: int,
) -> Table:
    """Rank correlation of two readouts' accuracies over representations.

    The interval is from a bootstrap over test rows, the same rows for all methods, with the representations fixed. `p`
    is the exact permutation test over representations.

    Args:
        predictions: of methods named `<mode>:<representation>:<readout>`.
        groups: modes and their representations.
        pairs: of readouts.

    Returns:
        Rows of mode, readout, against, representations (their number), rho, low, high, p.
    """
    probs, y = np.asarray(predictions.probs), np.asarray(predictions.y)
    samples = metrics.bootstrap(probs, y, 1, resamples, seed, ("accuracy",))[:, :, 0]  # (M, R)
    accuracy = (probs.argmax(2) == y).mean(1)  # (M,)
    rows: Table = []
    for mode, representations in groups:
        for pair in pairs:
            a, b = (
                [predictions.methods.index(f"{mode}:{name}:{readout}") for name in representations] for readout in pair
            )
            rho = spearman(accuracy[a], accuracy[b])
            values = spearman(samples[a].T, samples[b].T)  # (R,)
            values = values[np.isfinite(values)]
            low, high = metrics.interval(values, confidence) if len(values) else (-1.0, 1.0)
            tied = bool(np.isnan(rho))
            rows.append(
                {
                    "mode": mode,
                    "readout": pair[0],
                    "against": pair[1],
                    "representations": len(representations),
                    "rho": 0.0 if tied else float(rho),
                    "low": low,
                    "high": high,
                    "p": 1.0 if tied else exact_p(accuracy[a], accuracy[b]),
                }
            )
    return rows

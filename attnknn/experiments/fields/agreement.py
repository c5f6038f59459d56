"""Do kNN and probes put representations in the same order? Rank correlations of accuracies, and how sure these are."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import require
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import Table

_MOST = 8  # representations whose orders are all counted


def spearman(a: Float[np.ndarray, "*R n"], b: Float[np.ndarray, "*R n"]) -> Float[np.ndarray, "*R"]:
    """Spearman's ρ of the last axis: the correlation of ranks, ties sharing theirs; NaN where all of one are tied."""
    a, b = (rankdata(of, axis=-1) for of in (a, b))
    a, b = (of - of.mean(-1, keepdims=True) for of in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def exact_p(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Share of the orders of b that correlate as strongly with a, in either direction: of 5 things at least 1/60.

    Raises:
        InputError: more things than orders can be counted of.
    """
    require(len(a) <= _MOST, f"exact_p: {len(a)} things; {_MOST} at most")
    orders = np.asarray(list(permutations(b)))
    found = np.abs(spearman(np.broadcast_to(a, orders.shape), orders))
    return float((found >= abs(float(spearman(a, b))) - 1e-9).mean())


def agreements(
    predictions: Predictions,
    groups: Sequence[tuple[str, Sequence[str]]],
    pairs: Sequence[tuple[str, str]],
    resamples: int,
    confidence: float,
    seed: int,
) -> Table:
    """Rank correlation of two readouts' accuracies over representations.

    The interval is that of the bootstrap over test rows, the same rows for all; it does not say how other
    representations would lie, which `p` does: the exact test that any order is as likely as any other.

    Args:
        predictions: methods are named `<group>:<representation>:<readout>`.
        groups: names and their representations.
        pairs: of readouts.

    Returns:
        Rows of group, readout, against, representations (how many), rho, low, high, p.
    """
    probs, y = np.asarray(predictions.probs), np.asarray(predictions.y)
    drawn = metrics.bootstrap(probs, y, 1, resamples, seed, ("accuracy",))[:, :, 0]  # (M, R)
    right = (probs.argmax(2) == y).mean(1)  # (M,)
    rows: Table = []
    for group, representations in groups:
        for one, other in pairs:
            at = [
                [predictions.methods.index(f"{group}:{name}:{readout}") for name in representations]
                for readout in (one, other)
            ]
            rho = spearman(drawn[at[0]].T, drawn[at[1]].T)  # (R,)
            low, high = metrics.interval(rho[np.isfinite(rho)], confidence) if np.isfinite(rho).any() else (-1.0, 1.0)
            own = float(spearman(right[at[0]], right[at[1]]))
            rows.append(
                {
                    "group": group,
                    "readout": one,
                    "against": other,
                    "representations": len(representations),
                    "rho": 0.0 if np.isnan(own) else own,
                    "low": low,
                    "high": high,
                    "p": 1.0 if np.isnan(own) else exact_p(right[at[0]], right[at[1]]),
                }
            )
    return rows

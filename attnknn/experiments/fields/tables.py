"""Compare representations by their readouts: scores, paired tests and rank correlations."""

from collections.abc import Mapping, Sequence
from math import factorial
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import permutation_test, rankdata

from attnknn.core.artifacts import Predictions
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import TESTED, Pair, Table, intervals_and_tests
from attnknn.experiments.fields.variants import ENCODER, KNN_READOUTS, MODES, PIXELS, PROBES, VARIANTS

Means = dict[str, dict[str, dict[str, dict[str, float]]]]  # mode → representation → readout → metric
_COMPARED = (  # a field and its baseline, by the same readout
    *((field, PIXELS) for field in VARIANTS),
    *((f"{context}_nce", baseline) for context in MODES for baseline in (context, f"{context}_views")),
    ("sparse", "full"),
)


def compared_pairs(methods: Sequence[str]) -> list[Pair]:
    """Pairs to test: fields against baselines, and attention against distance weighting."""
    pairs = [
        (f"{mode}:{name}:{readout}", f"{mode}:{baseline}:{readout}")
        for mode in MODES
        for readout in (*KNN_READOUTS, *PROBES)
        for name, baseline in _COMPARED
    ]
    names = dict.fromkeys(method.rpartition(":")[0] for method in methods)
    pairs += [(f"{name}:attention", f"{name}:distance") for name in names]
    return [pair for pair in pairs if set(pair) <= set(methods)]


def spearman(a: Float[np.ndarray, "*R n"], b: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "*R"]:
    """Spearman's ρ along the last axis, row by row; NaN where all values of a row are tied."""
    a, b = (rankdata(x, axis=-1) for x in (a, b))
    a, b = (ranks - ranks.mean(-1, keepdims=True) for ranks in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def exact_p(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Exact two-sided permutation test of Spearman's ρ over all n! permutations; of 5 items p is at least 1/60."""

    def statistic(permuted: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.abs(spearman(permuted, b)).round(9)  # equal values of ρ differ by rounding errors

    options = {"permutation_type": "pairings", "vectorized": True, "n_resamples": factorial(len(a))}
    return float(permutation_test((a,), statistic, **options, alternative="greater").pvalue)


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
            row = {"mode": mode, "readout": pair[0], "against": pair[1], "representations": len(representations)}
            row |= {"rho": 0.0 if tied else float(rho), "low": low, "high": high}
            rows.append(row | {"p": 1.0 if tied else exact_p(accuracy[a], accuracy[b])})
    return rows


def _parsed(method: str) -> dict[str, str]:
    return dict(zip(("mode", "representation", "readout"), method.split(":"), strict=True))


def tables(predictions: Predictions, scoring: Mapping[str, Any], seed: int) -> tuple[Means, dict[str, Table]]:
    """Mean scores, and the tables of `variants.PROBE_TABLES`: intervals, paired tests, rank correlations.

    Rank correlations are over representations learnt without labels, so without the encoder.

    Args:
        predictions: from `readouts.read_out_all`.
        scoring: bins, resamples, confidence.
    """
    pairs = compared_pairs(predictions.methods)
    intervals, paired = intervals_and_tests(predictions, pairs, **scoring, seed=seed, metric_names=TESTED)
    means: Means = {}
    scores: Table = []
    for row in intervals:
        method = _parsed(row.pop("method"))
        scores.append(method | row)
        readouts = means.setdefault(method["mode"], {}).setdefault(method["representation"], {})
        readouts.setdefault(method["readout"], {})[row["metric"]] = row["value"]
    tests: Table = []
    for row in paired:
        baseline = _parsed(row.pop("baseline"))
        columns = {"baseline": baseline["representation"], "baseline_readout": baseline["readout"]}
        tests.append(_parsed(row.pop("method")) | columns | row)
    groups = [(mode, [name for name in means[mode] if name != ENCODER]) for mode in means]
    readout_pairs = [("distance", PROBES[0]), ("distance", PROBES[1]), ("attention", PROBES[0]), PROBES]
    agreement = agreements(predictions, groups, readout_pairs, scoring["resamples"], scoring["confidence"], seed)
    return means, {"probe": scores, "probe_paired": tests, "probe_agreement": agreement}

"""Compare representations by their readouts: scores, paired tests and rank correlations."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnknn.core.artifacts import Predictions
from attnknn.evaluation.paired_tests import TESTED, Pair, Table, intervals_and_tests
from attnknn.experiments.fields.agreement import agreements
from attnknn.experiments.fields.variants import ENCODER, KNN_READOUTS, MODES, PIXELS, PROBES, VARIANTS

Means = dict[str, dict[str, dict[str, dict[str, float]]]]  # mode → representation → readout → metric
_COMPARED = (  # a field and its baseline, by the same readout
    *((field, PIXELS) for field in VARIANTS),
    *(("full_nce", "full"), ("sparse_nce", "sparse"), ("sparse", "full")),
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

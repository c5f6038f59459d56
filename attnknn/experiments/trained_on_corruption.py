"""Encoder, head and baselines trained on wrong labels or rare classes; scored on clean test rows (fault 10)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, Embeddings, Predictions
from attnknn.core.files import read_json
from attnknn.evaluation import metrics
from attnknn.evaluation.calibration import PRIOR
from attnknn.evaluation.evaluate import classifier, stack_methods
from attnknn.evaluation.paired_tests import BASE, UNDER_CONDITIONS, Pair, Table, intervals_and_tests
from attnknn.experiments.corruption import (
    NETWORK,
    NETWORKS,
    imbalance_conditions,
    noise_conditions,
)
from attnknn.experiments.label_cleaning import forward_temperature, sharpened, transitions
from attnknn.experiments.refit import fit_and_compare
from attnknn.neighbours.space import EmbeddingSpace

NOISE = ("symmetric", "asymmetric", "instance")
_SCORES = ("variant", "method", "metric", "value", "low", "high")
_PAIRED = (
    "variant",
    "method",
    "baseline_variant",
    "baseline",
    "metric",
    "difference",
    "low",
    "high",
    "errors",
    "p",
    "test",
)
COLUMNS = {
    "noise_trained": ("condition", "rate", *_SCORES),
    "noise_trained_paired": ("condition", "rate", *_PAIRED),
    "cleaning": ("condition", "rate", "round", "quantity", "value"),
    "imbalance_trained": ("condition", "ratio", *_SCORES),
    "imbalance_trained_paired": ("condition", "ratio", *_PAIRED),
}
LIKE = ("distance", "linear", "prototypes")  # what attention is set beside in one encoder's space, by the same labels


def answered(
    spaces: Mapping[str, EmbeddingSpace],
    networks: Mapping[str, Embeddings],
    calibrations: Sequence[str],
    seed: int,
    **settings: Any,
) -> tuple[Predictions, Predictions]:
    """What every method says of test rows and of val rows, as `<variant>:<method>`; all is fitted for its variant.

    Args:
        spaces: by variant; the same test rows and val rows in each.
        networks: by variant; what plain networks make of the same rows.
        calibrations: kinds that count as methods of their own, beside those of `scorecard.BASE`.
        settings: of `fit_and_compare`.
    """
    kinds = ("temperature", "vector", *calibrations)

    def of_variant(variant: str, result: Predictions) -> Predictions:
        shown = [m for m, name in enumerate(result.methods) if name in BASE or name.rpartition("_")[2] in calibrations]
        names = tuple(f"{variant}:{result.methods[m]}" for m in shown)
        return dataclasses.replace(result, probs=result.probs[shown], methods=names)

    first = next(iter(spaces.values()))
    ridges = settings["grids"]["ridges"]
    results = {variant: classifier(network, first, ridges, kinds) for variant, network in networks.items()}
    for variant, space in spaces.items():
        results[variant] = fit_and_compare([space], seed=seed, calibrations=kinds, **settings)
    test, val = (
        [of_variant(name, getattr(result, part)) for name, result in results.items()] for part in ("test", "val")
    )
    return reduce(stack_methods, test), reduce(stack_methods, val)


def with_forward(test: Predictions, val: Predictions, transition: np.ndarray) -> Predictions:
    """Every method as it is, and as `<method>_forward` at its `forward_temperature`, which is fitted on val rows."""
    heat = [forward_temperature(probs, val.y, transition) for probs in val.probs]
    probs = np.stack([sharpened(probs, t) for probs, t in zip(test.probs, heat, strict=True)])
    names = tuple(f"{name}_forward" for name in test.methods)
    return stack_methods(test, dataclasses.replace(test, probs=probs, methods=names))


def _versus(methods: Sequence[str], wanted: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in wanted if set(pair) <= set(methods)]


def noise_pairs(methods: Sequence[str]) -> list[Pair]:
    """Who is tested against whom under noise; each bare and forward-corrected.

    Cleaned labels against those given, for one method; neighbours against plain networks; attention against what reads
    the same space by the same labels.
    """
    plain, cleaned = (f"{network}:cnn" for network in NETWORKS)
    tested = [(cleaned, plain), *((f"cleaned:{name}", f"plain:{name}") for name in ("attention", *LIKE))]
    tested += [(f"{space}:{name}", plain) for name in ("attention", "distance") for space in ("plain", "cleaned")]
    tested += [(f"cleaned:{name}", cleaned) for name in ("attention", "distance")]
    tested += [(f"{space}:attention", f"{space}:{name}") for space in ("plain", "cleaned") for name in LIKE]
    return _versus(methods, tested + [(f"{a}_forward", f"{b}_forward") for a, b in tested])


def imbalance_pairs(methods: Sequence[str]) -> list[Pair]:
    """Who is tested against whom under imbalance: against the plain network and distance, corrected against not."""
    tested = [(f"plain:{name}", f"{NETWORK}:cnn") for name in ("attention", "distance", "linear")]
    tested += [("plain:attention", "plain:distance"), ("plain:attention", "plain:distance_vector")]
    corrected = [(f"{a}_{PRIOR}", f"{b}_{PRIOR}") for a, b in tested]
    bare = dict.fromkeys(name for pair in tested for name in pair)
    return _versus(methods, tested + corrected + [(f"{name}_{PRIOR}", name) for name in bare])


def _parted(name: str) -> dict[str, str]:
    variant, _, method = name.partition(":")
    return {"variant": variant, "method": method}


def tables(
    predictions: Predictions,
    pairs: Sequence[Pair],
    scoring: Mapping[str, Any],
    seed: int,
    counts: np.ndarray | None = None,
) -> tuple[Table, Table]:
    """Scores with intervals, and paired tests, of what `answered` gave.

    Args:
        scoring: bins, resamples, confidence.
        counts: (C,) bank rows of each class; given these, the accuracies of `metrics.shot_accuracy` are there too,
            without an interval.

    Returns:
        Rows of variant, method, metric, value, low, high; and of variant, method, baseline_variant, baseline, metric,
        difference, low, high, errors, p, test.
    """
    intervals, paired = intervals_and_tests(predictions, pairs, **scoring, seed=seed, metric_names=UNDER_CONDITIONS)
    if counts is not None:
        for name, probs in zip(predictions.methods, predictions.probs, strict=True):
            shots = metrics.shot_accuracy(probs, predictions.y, counts).items()
            intervals += [{"method": name, "metric": m, "value": v, "low": None, "high": None} for m, v in shots]
    intervals = [{**row, **_parted(row["method"])} for row in intervals]
    scored = [{"variant": row.pop("variant"), **row} for row in intervals]
    tested = []
    for row in paired:
        method, baseline = _parted(row["method"]), _parted(row["baseline"])
        who = {**method, "baseline_variant": baseline["variant"], "baseline": baseline["method"]}
        tested.append(who | {key: value for key, value in row.items() if key not in who})
    return scored, tested


def under_noise(
    plain: EmbeddingSpace,
    cleaned: EmbeddingSpace,
    networks: Mapping[str, Embeddings],
    scoring: Mapping[str, Any],
    seed: int,
    **settings: Any,
) -> tuple[Table, Table]:
    """All methods in a memory of wrong labels and in a cleaned one, and plain networks; bare and forward-corrected.

    How labels were mixed up is estimated from what cleaning changed, once, for all of them.

    Args:
        plain, cleaned: fit and val rows carry the same labels, wrong ones among them; see `cleaning.clean_labels`.
        networks: by the names in `NETWORKS`; trained on the labels of `plain` and on those of `cleaned`.
        scoring: bins, resamples, confidence.
        settings: of `fit_and_compare`.

    Returns:
        As `tables`.
    """
    e, rows = plain.embeddings, plain.embeddings.rows(BANK)
    mixing = transitions(np.asarray(e.y[rows]), np.asarray(cleaned.embeddings.y[rows]), len(e.classes))
    predictions = with_forward(*answered({"plain": plain, "cleaned": cleaned}, networks, (), seed, **settings), mixing)
    return tables(predictions, noise_pairs(predictions.methods), scoring, seed)


def under_imbalance(
    plain: EmbeddingSpace, network: Embeddings, scoring: Mapping[str, Any], seed: int, **settings: Any
) -> tuple[Table, Table]:
    """All methods in a memory of rare classes, and a plain network; each bare and corrected for the class shares.

    Args:
        scoring, settings: as for `under_noise`.

    Returns:
        As `tables`, with `many`, `medium` and `few`.
    """
    e = plain.embeddings
    predictions = answered({"plain": plain}, {NETWORK: network}, (PRIOR,), seed, **settings)[0]
    counts = np.bincount(e.y[e.rows(BANK)], minlength=len(e.classes))
    return tables(predictions, imbalance_pairs(predictions.methods), scoring, seed, counts)


def as_scores(table: Table) -> dict[str, dict[str, dict[str, float]]]:
    """{variant: {method: {metric: value}}} of the methods of `scorecard.BASE`, of rows as `tables` makes them."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for row in table:
        if row["method"] in BASE:
            scores.setdefault(row["variant"], {}).setdefault(row["method"], {})[row["metric"]] = row["value"]
    return scores


def compare_trained(
    folders: Mapping[str, Path], scoring: Mapping[str, Any], seed: int, **settings: Any
) -> tuple[dict[str, dict[str, Any]], dict[str, Table]]:
    """Compare all methods for what was trained on each condition.

    Args:
        folders: by condition, `symmetric-0.4` or `long_tail-0.1`, what `train_on_noise` or `train_on_imbalance` wrote.
        scoring: bins, resamples, confidence.
        settings: of `fit_and_compare`.

    Returns:
        Scores under `noise_trained` and `imbalance_trained`, and the tables of `COLUMNS`.
    """
    scores: dict[str, dict[str, Any]] = {"noise_trained": {}, "imbalance_trained": {}}
    results: dict[str, Table] = {name: [] for name in COLUMNS}
    for condition, folder in folders.items():
        kind, rate = condition.split("-")
        plain = EmbeddingSpace.load_whole(folder / "plain")
        if kind in NOISE:
            stage, columns = "noise_trained", {"condition": _named(noise_conditions, kind, rate), "rate": float(rate)}
            networks = {name: Embeddings.load(folder / name) for name in NETWORKS}
            cleaned = EmbeddingSpace.load_whole(folder / "cleaned")
            scored, paired = under_noise(plain, cleaned, networks, scoring, seed, **settings)
            for i, counts in enumerate(read_json(folder / "cleaning.json")["rounds"], 1):
                rows = [{"round": i, "quantity": name, "value": value} for name, value in counts.items()]
                results["cleaning"] += [columns | row for row in rows]
        else:
            stage, columns = (
                "imbalance_trained",
                {"condition": _named(imbalance_conditions, kind, rate), "ratio": float(rate)},
            )
            scored, paired = under_imbalance(plain, Embeddings.load(folder / NETWORK), scoring, seed, **settings)
        scores[stage][columns["condition"]] = as_scores(scored)
        results[stage] += [columns | row for row in scored]
        results[f"{stage}_paired"] += [columns | row for row in paired]
    return scores, results


def _named(conditions: Callable[..., Mapping[str, Any]], kind: str, rate: str) -> str:
    return next(iter(conditions([kind], [float(rate)])))

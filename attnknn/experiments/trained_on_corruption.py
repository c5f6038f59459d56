"""Compare encoders, heads, baselines and networks trained on wrong labels or rare classes, on clean test rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from attnknn.core.artifacts import BANK, Embeddings, Predictions
from attnknn.core.files import read_json
from attnknn.evaluation.calibration import fit_temperature
from attnknn.evaluation.evaluate import plain_network, stack_methods
from attnknn.evaluation.method import FORWARD, PRIOR, Method
from attnknn.evaluation.opponents import UNDER_CONDITIONS
from attnknn.evaluation.paired_tests import BASE, Pair, Table, intervals_and_tests
from attnknn.experiments.conditions import through_noise
from attnknn.experiments.corruption import NETWORK, NETWORKS, NOISES, condition_name
from attnknn.experiments.refit import Scores, fit_and_compare, shot_accuracies
from attnknn.neighbours.space import EmbeddingSpace

_SCORES = ("variant", "method", "metric", "value", "low", "high")
_PAIRED = ("variant", "method", "baseline_variant", "baseline", "metric", "difference", "low", "high", "errors")
_PAIRED += ("p", "test")
COLUMNS = {
    "noise_trained": ("condition", "rate", *_SCORES),
    "noise_trained_paired": ("condition", "rate", *_PAIRED),
    "cleaning": ("condition", "rate", "round", "quantity", "value"),
    "imbalance_trained": ("condition", "ratio", *_SCORES),
    "imbalance_trained_paired": ("condition", "ratio", *_PAIRED),
}
_TINY = float(np.finfo(np.float32).tiny)
SAME_SPACE = ("distance", "linear", "prototypes")  # compared with attention in one encoder's space
CORRECTED = "corrected"  # variant: encoder trained on labels as given, the rest through the estimated label noise


def name_variant(variant: str, predictions: Predictions, calibrations: Sequence[str]) -> Predictions:
    """Methods of `paired_tests.BASE` and those of the calibrations, named `<variant>:<method>`."""
    methods = [Method.parse(name) for name in predictions.methods]
    idx = [i for i, method in enumerate(methods) if method.name in BASE or method.calibration in calibrations]
    names = tuple(str(dataclasses.replace(methods[i], variant=variant)) for i in idx)
    return dataclasses.replace(predictions, probs=predictions.probs[idx], methods=names)


def predict_variants(
    spaces: Mapping[str, EmbeddingSpace],
    networks: Mapping[str, Embeddings],
    calibrations: Sequence[str],
    seed: int,
    **settings: Any,
) -> tuple[Predictions, Predictions]:
    """Predictions of test and of val rows by every method, named `<variant>:<method>`, fitted for its variant.

    Args:
        spaces: by variant, with the same test and val rows.
        networks: by variant, outputs of plain networks for the same rows.
        calibrations: kinds that are reported for every method, beside the methods of `paired_tests.BASE`.
        settings: of `fit_and_compare`.
    """
    kinds = ("temperature", "vector", *calibrations)
    first = next(iter(spaces.values()))
    ridges = settings["grids"]["ridges"]
    results = {variant: plain_network(network, first, ridges, kinds) for variant, network in networks.items()}
    for variant, space in spaces.items():
        results[variant] = fit_and_compare([space], seed=seed, calibrations=kinds, **settings)
    test = reduce(stack_methods, [name_variant(v, result.test, calibrations) for v, result in results.items()])
    return test, reduce(stack_methods, [name_variant(v, result.val, calibrations) for v, result in results.items()])


def transition_matrix(labels: np.ndarray, cleaned: np.ndarray, n_classes: int) -> np.ndarray:
    """T[c, g] = share of noisy label g among the rows (N,) cleaned to class c: float64 (C, C), rows sum to 1.

    An estimate of P(noisy label | true class) (Patrini et al. 2017), with an added count of 1 for g = c.
    """
    counts = np.eye(n_classes)
    np.add.at(counts, (cleaned, labels), 1)
    return counts / counts.sum(1, keepdims=True)


def with_forward_correction(test: Predictions, val: Predictions, transition: np.ndarray) -> Predictions:
    """Add each method at the temperature of lowest NLL through T of val labels, as `<method>_forward`.

    A classifier fitted on noisy labels predicts these, and is underconfident about the true class; plain temperature
    scaling on noisy labels cannot correct that.
    """

    def corrected(probs: np.ndarray, of_val: np.ndarray) -> np.ndarray:
        log_val, log_test = (np.log(np.maximum(p, _TINY, dtype=np.float64)) for p in (of_val, probs))
        t = fit_temperature(log_val, val.y, transition)
        p = np.maximum(softmax(log_test / t, axis=1), 2 * _TINY)
        return (p / p.sum(1, keepdims=True)).astype(np.float32)

    probs = np.stack([corrected(*pair) for pair in zip(test.probs, val.probs, strict=True)])
    names = tuple(f"{name}_{FORWARD}" for name in test.methods)
    return stack_methods(test, dataclasses.replace(test, probs=probs, methods=names))


def _existing(pairs: Sequence[Pair], methods: Sequence[str]) -> list[Pair]:
    return [pair for pair in pairs if set(pair) <= set(methods)]


def noise_pairs(methods: Sequence[str]) -> list[Pair]:
    """Pairs (method, baseline) to test under noise, each uncorrected and forward-corrected.

    Cleaned against noisy labels, for one method; kNN against plain networks; attention against other methods in the
    same space, with the same labels; attention on `CORRECTED` labels against networks.
    """
    plain, cleaned = (f"{network}:cnn" for network in NETWORKS)
    pairs = [(cleaned, plain), *((f"cleaned:{name}", f"plain:{name}") for name in ("attention", *SAME_SPACE))]
    pairs += [(f"{space}:{name}", plain) for name in ("attention", "distance") for space in ("plain", "cleaned")]
    pairs += [(f"cleaned:{name}", cleaned) for name in ("attention", "distance")]
    pairs += [(f"{space}:attention", f"{space}:{name}") for space in ("plain", "cleaned") for name in SAME_SPACE]
    through = [("attention", "distance"), *((name, "linear") for name in ("attention", "attention-linear"))]
    through = [(f"{CORRECTED}:{a}", f"{CORRECTED}:{b}") for a, b in through]
    through += [(f"{CORRECTED}:{name}", own) for own in (plain, cleaned) for name in ("attention", "attention-linear")]
    pairs = pairs + [(f"{a}_{FORWARD}", f"{b}_{FORWARD}") for a, b in pairs + through]
    return _existing(pairs, methods)


def imbalance_pairs(methods: Sequence[str]) -> list[Pair]:
    """Pairs to test under imbalance: against the plain network and distance, and prior-corrected against not."""
    pairs = [(f"plain:{name}", f"{NETWORK}:cnn") for name in ("attention", "distance", "linear")]
    pairs += [("plain:attention", "plain:distance"), ("plain:attention", "plain:distance_vector")]
    corrected = [(f"{a}_{PRIOR}", f"{b}_{PRIOR}") for a, b in pairs]
    uncorrected = dict.fromkeys(name for pair in pairs for name in pair)
    return _existing(pairs + corrected + [(f"{name}_{PRIOR}", name) for name in uncorrected], methods)


def compare_trained(
    folders: Mapping[str, Path], clean: np.ndarray, scoring: Mapping[str, Any], seed: int, **settings: Any
) -> tuple[dict[str, dict[str, Any]], dict[str, Table]]:
    """Compare all methods trained on each condition, on clean test rows.

    Under noise each is uncorrected and forward-corrected, under imbalance with and without
    `calibration.correct_prior`, and with the accuracies of `refit.shot_accuracies`.

    Args:
        folders: outputs of `train_on_noise` or `train_on_imbalance` by condition, as `symmetric-0.4`, `long_tail-0.1`.
        clean: true labels (N,), which measure the estimated label noise.
        scoring: bins, resamples, confidence.
        settings: of `fit_and_compare`.

    Returns:
        Scores of the methods of `paired_tests.BASE` and of those on `CORRECTED` labels under `noise_trained` and
        `imbalance_trained`, by condition, variant, method and metric, with the quality of the estimated noise; and the
        tables of `COLUMNS`.
    """
    scores: dict[str, dict[str, Any]] = {"noise_trained": {}, "imbalance_trained": {}}
    tables: dict[str, Table] = {name: [] for name in COLUMNS}
    for condition, folder in folders.items():
        kind, rate = condition.split("-")
        name = condition_name(kind, float(rate))
        spaces = {"plain": EmbeddingSpace.load_whole(folder / "plain")}
        bank = spaces["plain"].embeddings
        columns: dict[str, Any]
        own_scores: dict[str, Scores] = {}
        if kind in NOISES:
            stage, columns = "noise_trained", {"condition": name, "rate": float(rate)}
            spaces["cleaned"] = EmbeddingSpace.load_whole(folder / "cleaned")
            networks = {network: Embeddings.load(folder / network) for network in NETWORKS}
            test, val = predict_variants(spaces, networks, (), seed, **settings)
            # Estimated once for all methods, from the labels that cleaning changed.
            noisy, cleaned = (np.asarray(space.embeddings.y[bank.rows(BANK)]) for space in spaces.values())
            test = with_forward_correction(test, val, transition_matrix(noisy, cleaned, len(bank.classes)))
            through, _, estimate = through_noise([spaces["plain"]], clean, seed, settings, held_out=True)
            own_scores[CORRECTED] = {"label noise": estimate}
            test = stack_methods(test, name_variant(CORRECTED, through, (FORWARD,)))
            pairs = noise_pairs(test.methods)
            for i, quantities in enumerate(read_json(folder / "cleaning.json")["rounds"], 1):
                rows = [{"round": i, "quantity": name, "value": value} for name, value in quantities.items()]
                tables["cleaning"] += [columns | row for row in rows]
        else:
            stage, columns = "imbalance_trained", {"condition": name, "ratio": float(rate)}
            networks = {NETWORK: Embeddings.load(folder / NETWORK)}
            test, _ = predict_variants(spaces, networks, (PRIOR,), seed, **settings)
            pairs = imbalance_pairs(test.methods)
        intervals, paired = intervals_and_tests(test, pairs, **scoring, seed=seed, metric_names=UNDER_CONDITIONS)
        if stage == "imbalance_trained":
            intervals += shot_accuracies(test, bank)
        for table, rows in {stage: intervals, f"{stage}_paired": paired}.items():
            for row in rows:
                method, baseline = Method.parse(row["method"]), Method.parse(row.get("baseline", row["method"]))
                row |= columns | {"variant": method.variant, "method": method.name}
                row |= {"baseline_variant": baseline.variant, "baseline": baseline.name}
                tables[table].append({column: row[column] for column in COLUMNS[table]})
                if table == stage and (method.name in BASE or method.variant == CORRECTED):
                    by_method = own_scores.setdefault(method.variant, {})
                    by_method.setdefault(method.name, {})[row["metric"]] = row["value"]
        scores[stage][columns["condition"]] = own_scores
    return scores, tables

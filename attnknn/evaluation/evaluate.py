"""Predictions of all methods on the same rows: baselines tuned on val, calibration fitted on fit rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from attnknn.core.artifacts import FIT, TEST, VAL, Embeddings, PartProbs, Predictions
from attnknn.core.errors import require
from attnknn.evaluation.calibration import KINDS, calibrate
from attnknn.evaluation.method import Method
from attnknn.evaluation.metrics import oracle
from attnknn.evaluation.paired_tests import FOLDS
from attnknn.heads.attention import Head
from attnknn.heads.baselines import Distance, Tuned, Uniform, choices_of_k, tune_distance, tune_uniform
from attnknn.heads.classify import classify_part
from attnknn.neighbours.space import EmbeddingSpace, classes_of, part_neighbours, part_rows


@dataclass(frozen=True)
class Comparison:
    """Predictions of all methods on test and val rows, and their tuned or fitted settings."""

    test: Predictions
    val: Predictions
    tuned: dict[str, Tuned]


def tuned_baselines(
    spaces: Sequence[EmbeddingSpace],
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    transition: np.ndarray | None = None,
) -> tuple[dict[str, Head], dict[str, Tuned]]:
    """Tune `uniform` and `distance` on val, through T if given; return them as heads and as settings.

    Raises:
        InputError: a k is above the number of stored neighbours.
    """
    on_val = *part_neighbours(spaces, VAL, max(ks)), classes_of(spaces, VAL), spaces[0].shares, ks
    tuned: dict[str, Tuned] = {
        "uniform": tune_uniform(*on_val, priors, transition),
        "distance": tune_distance(*on_val, temperatures, priors, transition=transition),
    }
    heads = {"uniform": Uniform(**tuned["uniform"]), "distance": Distance(**tuned["distance"])}  # type: ignore[arg-type]
    return heads, tuned


def linear_probs(spaces: Sequence[EmbeddingSpace], part: int) -> np.ndarray:
    """Probabilities float32 (M, C) by the encoder's linear head of the rows of a part, in the order of `part_rows`."""
    logits = np.concatenate([space.embeddings.logits[rows] for space, rows in part_rows(spaces, part)])  # type: ignore[index]
    return softmax(logits.astype(np.float64), 1).clip(np.finfo(np.float32).tiny).astype(np.float32)


def predict_parts(
    spaces: Sequence[EmbeddingSpace],
    heads: Mapping[str, Head],
    k: int,
    device: str = "cpu",
    memory: EmbeddingSpace | None = None,
) -> PartProbs:
    """Probabilities of fit, val and test rows by each head, and by `linear` where the embeddings have logits.

    Fit and val rows are those of all spaces, test rows those of the first, or of `memory`.
    """
    parts = ((spaces, FIT), (spaces, VAL), ([memory or spaces[0]], TEST))
    probs = {}
    for name, head in heads.items():
        fit, val, test = (classify_part(head, part_spaces, part, k, device) for part_spaces, part in parts)
        probs[name] = fit, val, test
    if spaces[0].embeddings.logits is not None:
        fit, val, test = (linear_probs(part_spaces, part) for part_spaces, part in parts)
        probs["linear"] = fit, val, test
    return probs


def as_predictions(spaces: Sequence[EmbeddingSpace], part: int, probs: Mapping[str, np.ndarray]) -> Predictions:
    """Predictions of the rows of a part of all spaces, from probabilities (M, C) by method."""
    rows = np.concatenate([rows for _, rows in part_rows(spaces, part)]).astype(np.int32)
    classes = tuple(spaces[0].embeddings.classes)
    return Predictions(rows, classes_of(spaces, part), np.stack(list(probs.values())), tuple(probs), classes)


def calibrated(
    probs: PartProbs,
    spaces: Sequence[EmbeddingSpace],
    ridges: Sequence[float],
    calibrations: Sequence[str],
) -> tuple[Predictions, Predictions, dict[str, Tuned]]:
    """Add every calibration of every method, fitted on fit rows.

    Returns:
        Predictions of the test rows, predictions of the val rows, and the calibrations' settings.
    """
    y_fit, y_val = classes_of(spaces, FIT), classes_of(spaces, VAL)
    on_val, on_test = ({name: by_part[i] for name, by_part in probs.items()} for i in (1, 2))
    tuned: dict[str, Tuned] = {}
    for name, (fit, val, test) in probs.items():
        for kind in calibrations:
            result = calibrate(kind, fit, y_fit, val, y_val, test, ridges, spaces[0].shares.numpy())
            method = str(Method(name, kind))
            on_val[method], on_test[method], tuned[method] = result.val, result.test, result.settings
    return as_predictions(spaces[:1], TEST, on_test), as_predictions(spaces, VAL, on_val), tuned


def compare(
    spaces: Sequence[EmbeddingSpace],
    heads: Mapping[str, Head],
    k_eval: int,
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    ridges: Sequence[float],
    calibrations: Sequence[str],
    device: str = "cpu",
    memory: EmbeddingSpace | None = None,
    members: Sequence[EmbeddingSpace] = (),
) -> Comparison:
    """Tune, fit and predict with all methods.

    Methods: `uniform` and `distance` (k, τ, ε by NLL on val), the heads by name (k_eval neighbours), `linear` where the
    encoder has a linear head; and each of these with each calibration, as `<method>_<calibration>`.

    Args:
        spaces: the main embedding space, whose test rows are predicted, then those of cross-fitting folds, if any; the
            val rows of all tune baselines and their fit rows fit calibration.
        k_eval: the most neighbours that any method may use.
        ks, temperatures, priors, ridges: grids; temperatures in units of `baselines.similarity_scale`.
        calibrations: kinds of `calibration.calibrate`.
        memory: the main space with a larger bank (see `with_larger_bank`), for test rows only; nothing is tuned on it.
        members: the same rows by other encoders, for test rows only: the mean of `distance` (`attention`) over these
            spaces and the main one is the method `distance-folds` (`attention-folds`).

    Raises:
        InputError: k_eval is above the number of stored neighbours.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    require(k_eval <= stored, f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval")
    baselines, tuned = tuned_baselines(spaces, choices_of_k(ks, k_eval), temperatures, priors)
    probs = predict_parts(spaces, {**baselines, **heads}, k_eval, device, memory)
    test, val, fitted = calibrated(probs, spaces, ridges, calibrations)
    if members:
        all_spaces = [memory or spaces[0], *members]
        means = {
            f"{name}-folds": np.mean([classify_part(head, [space], TEST, k_eval, device) for space in all_spaces], 0)
            for name, head in {**baselines, **heads}.items()
            if f"{name}-folds" in FOLDS
        }
        test = stack_methods(test, as_predictions(spaces[:1], TEST, means))
    return Comparison(test, val, tuned | fitted)


def plain_network(
    network: Embeddings, like: EmbeddingSpace, ridges: Sequence[float], calibrations: Sequence[str]
) -> Comparison:
    """Predictions of a plain network from its logits, as the method `cnn`, without and with each calibration.

    Args:
        network: its outputs for the rows of `like`, whose embeddings they replace.
    """
    space = [dataclasses.replace(like, embeddings=network)]
    return Comparison(*calibrated({"cnn": predict_parts(space, {}, 1)["linear"]}, space, ridges, calibrations))


def compare_all(
    spaces: Sequence[EmbeddingSpace],
    heads: Mapping[str, Head],
    network: Embeddings,
    peers: PartProbs,
    k_eval: int,
    ridges: Sequence[float],
    device: str = "cpu",
    **grids: Sequence[float],
) -> Comparison:
    """`compare`, peers (see `experiments.peers`) and `plain_network` together, with every calibration.

    Under cross-fitting the val predictions lack the network: it does not predict the val rows of the folds.
    """
    ours = compare(spaces, heads, k_eval, ridges=ridges, calibrations=KINDS, device=device, **grids)  # type: ignore[arg-type]
    others = Comparison(*calibrated(peers, spaces, ridges, KINDS))
    plain = plain_network(network, spaces[0], ridges, KINDS)
    on_val = [ours.val, others.val, *([] if spaces[1:] else [plain.val])]
    test = stack_methods(ours.test, others.test, plain.test)
    return Comparison(test, stack_methods(*on_val), ours.tuned | others.tuned | plain.tuned)


def stack_methods(first: Predictions, *others: Predictions) -> Predictions:
    """Concatenate predictions of the same rows by different methods.

    Raises:
        InputError: the rows differ.
    """
    for other in others:
        same = np.array_equal(first.rows, other.rows) and np.array_equal(first.y, other.y)
        require(same, "predictions: rows differ; run `dvc repro`")
    probs = np.concatenate([predictions.probs for predictions in (first, *others)])
    methods = tuple(name for predictions in (first, *others) for name in predictions.methods)
    return dataclasses.replace(first, probs=probs, methods=methods)


def headroom(space: EmbeddingSpace, k: int) -> dict[str, float]:
    """`oracle` accuracy of the test rows' nearest 1, 5 and k neighbours, and k."""
    labels, y = part_neighbours([space], TEST, k)[1], classes_of([space], TEST)
    sizes = {"oracle_at_1": 1, "oracle_at_5": min(5, k), "oracle_at_k": k}
    return {name: oracle(labels, y, nearest) for name, nearest in sizes.items()} | {"k": k}

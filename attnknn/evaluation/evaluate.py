"""Every method on the same rows: tuned on val, fitted on fit, read once on test."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from attnknn.core.artifacts import FIT, TEST, VAL, Embeddings, Predictions
from attnknn.core.errors import require
from attnknn.evaluation.calibration import calibrate
from attnknn.evaluation.method import Method
from attnknn.evaluation.metrics import oracle
from attnknn.evaluation.paired_tests import FOLDS
from attnknn.heads.attention import Head
from attnknn.heads.baselines import Distance, Tuned, Uniform, choices_of_k, tune_distance, tune_uniform
from attnknn.heads.classify import classify_part
from attnknn.neighbours.space import EmbeddingSpace, classes_of, part_neighbours, part_rows

PartProbs = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]  # method → probabilities on fit, val and test rows


@dataclass(frozen=True)
class Comparison:
    """What every method answers on the test rows and on the val rows, and what was tuned or fitted for it."""

    test: Predictions
    val: Predictions
    tuned: dict[str, Tuned]


def tuned_baselines(
    spaces: Sequence[EmbeddingSpace],
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
) -> tuple[dict[str, Head], dict[str, Tuned]]:
    """`uniform` and `distance` with the k, τ and ε of lowest NLL on val, as heads and as values.

    Raises:
        InputError: a k is above the neighbours stored.
    """
    on_val = *part_neighbours(spaces, VAL, max(ks)), classes_of(spaces, VAL), spaces[0].shares, ks
    tuned: dict[str, Tuned] = {
        "uniform": tune_uniform(*on_val, priors),
        "distance": tune_distance(*on_val, temperatures, priors),
    }
    heads = {"uniform": Uniform(**tuned["uniform"]), "distance": Distance(**tuned["distance"])}  # type: ignore[arg-type]
    return heads, tuned


def linear_probs(spaces: Sequence[EmbeddingSpace], part: int) -> np.ndarray:
    """Probabilities float32 (M, C) of the encoder's linear head for the rows of a part, in the order of `part_rows`."""
    logits = np.concatenate([space.embeddings.logits[rows] for space, rows in part_rows(spaces, part)])  # type: ignore[index]
    return softmax(logits.astype(np.float64), 1).clip(np.finfo(np.float32).tiny).astype(np.float32)


def predict_parts(
    spaces: Sequence[EmbeddingSpace],
    heads: Mapping[str, Head],
    k: int,
    device: str = "cpu",
    memory: EmbeddingSpace | None = None,
) -> PartProbs:
    """What each head says of the fit, val and test rows by its k nearest; `linear` too, where there are logits.

    Fit and val rows are those of all spaces, test rows of the first alone, or of `memory`.
    """
    parts = ((spaces, FIT), (spaces, VAL), ([memory or spaces[0]], TEST))
    probs: PartProbs = {}
    for name, head in heads.items():
        fit, val, test = (classify_part(head, part_spaces, part, k, device) for part_spaces, part in parts)
        probs[name] = fit, val, test
    if spaces[0].embeddings.logits is not None:
        fit, val, test = (linear_probs(part_spaces, part) for part_spaces, part in parts)
        probs["linear"] = fit, val, test
    return probs


def as_predictions(spaces: Sequence[EmbeddingSpace], part: int, probs: Mapping[str, np.ndarray]) -> Predictions:
    """Predictions of the rows of a part of all spaces, from the probabilities (M, C) of each method."""
    rows = np.concatenate([rows for _, rows in part_rows(spaces, part)]).astype(np.int32)
    classes = tuple(spaces[0].embeddings.classes)
    return Predictions(rows, classes_of(spaces, part), np.stack(list(probs.values())), tuple(probs), classes)


def calibrated(
    probs: PartProbs,
    spaces: Sequence[EmbeddingSpace],
    ridges: Sequence[float],
    calibrations: Sequence[str],
) -> tuple[Predictions, Predictions, dict[str, Tuned]]:
    """Every method as it is and with each calibration, fitted on fit rows.

    Returns:
        Predictions of the test rows and of the val rows, and what was fitted.
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
    """Probabilities of every method, and what was tuned.

    Methods: `uniform` and `distance` (k, τ, ε by NLL on val), the given heads by their names (with k_eval neighbours),
    `linear` where the encoder has a linear head; and each of these with each calibration, as
    `<method>_<calibration>`, fitted on fit rows.

    Args:
        spaces: embeddings whose val rows tune baselines and whose fit rows fit calibration: first the main ones, whose
            test rows are answered, then those of the folds of a cross-fit, if any.
        k_eval: the most neighbours any method may use.
        ks, temperatures, priors, ridges: grids; temperatures in units of `baselines.similarity_scale`.
        calibrations: kinds of `calibration.calibrate`.
        memory: the main space with another memory (see `with_larger_bank`), for test rows only; nothing is tuned on it.
        members: the same rows by other encoders, for test rows alone: `distance` and `attention` answer in each of
            these spaces as well, and the mean over them and the main one is the method `<name>-folds`.

    Raises:
        InputError: k_eval is above the neighbours stored.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    require(k_eval <= stored, f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval")
    baselines, tuned = tuned_baselines(spaces, choices_of_k(ks, k_eval), temperatures, priors)
    probs = predict_parts(spaces, {**baselines, **heads}, k_eval, device, memory)
    of_test, of_val, fitted = calibrated(probs, spaces, ridges, calibrations)
    if members:
        fold_heads = {
            f"{name}-folds": head for name, head in {**baselines, **heads}.items() if f"{name}-folds" in FOLDS
        }
        each = [memory or spaces[0], *members]
        means = [
            np.mean([classify_part(head, [one], TEST, k_eval, device) for one in each], 0)
            for head in fold_heads.values()
        ]
        mean = dataclasses.replace(of_test, probs=np.stack(means), methods=tuple(fold_heads))
        of_test = stack_methods(of_test, mean)
    return Comparison(of_test, of_val, tuned | fitted)


def classifier(
    network: Embeddings, like: EmbeddingSpace, ridges: Sequence[float], calibrations: Sequence[str]
) -> Comparison:
    """A plain classifier by its logits, as the method `cnn`, bare and with each calibration.

    Args:
        network: of the same rows as `like`, whose own embeddings it takes the place of.
    """
    space = [dataclasses.replace(like, embeddings=network)]
    return Comparison(*calibrated({"cnn": predict_parts(space, {}, 1)["linear"]}, space, ridges, calibrations))


def stack_methods(first: Predictions, *others: Predictions) -> Predictions:
    """The methods of all of them, on the same rows.

    Raises:
        InputError: their rows differ.
    """
    for other in others:
        same = np.array_equal(first.rows, other.rows) and np.array_equal(first.y, other.y)
        require(same, "predictions: of other rows; run `dvc repro`")
    probs = np.concatenate([predictions.probs for predictions in (first, *others)])
    methods = tuple(name for predictions in (first, *others) for name in predictions.methods)
    return dataclasses.replace(first, probs=probs, methods=methods)


def headroom(space: EmbeddingSpace, k: int) -> dict[str, float]:
    """Share of test rows whose class is among their nearest 1, 5 and k, which no votes of these exceed; and k."""
    labels, y = part_neighbours([space], TEST, k)[1], classes_of([space], TEST)
    sizes = {"oracle_at_1": 1, "oracle_at_5": min(5, k), "oracle_at_k": k}
    return {name: oracle(labels, y, nearest) for name, nearest in sizes.items()} | {"k": k}

"""Every method on the same rows: tuned on val, fitted on fit, read once on test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from attnknn.artifacts import FIT, TEST, VAL, Predictions
from attnknn.calibration import calibrate
from attnknn.classify import classify
from attnknn.errors import require
from attnknn.heads import Distance, Head, Uniform
from attnknn.neighbourhood import Retrieved
from attnknn.tuning import Tuned, choices_of_k, tune_distance, tune_uniform


@dataclass(frozen=True)
class Compared:
    """What every method answers on the test rows and on the val rows, and what was tuned or fitted for it."""

    test: Predictions
    val: Predictions
    tuned: dict[str, Tuned]


def compare(
    retrieved: Retrieved,
    fits: Sequence[Retrieved],
    heads: Mapping[str, Head],
    k_eval: int,
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    ridges: Sequence[float],
    calibrations: Sequence[str],
    device: str = "cpu",
) -> Compared:
    """Probabilities of every method, and what was tuned.

    Methods: `uniform` and `distance` (k, τ, ε by NLL on val), the given heads by their names (with k_eval neighbours),
    `linear` where the encoder has a linear head; and each of these but the head `prototypes` with each calibration, as
    `<method>_<calibration>`, fitted on fit rows.

    Args:
        fits: whose fit rows calibration is fitted on: `retrieved` itself, or the folds of a cross-fit.
        k_eval: the most neighbours any method may use.
        ks, temperatures, priors, ridges: grids; temperatures in units of `tuning.spread`.
        calibrations: kinds of `calibration.calibrate`.

    Raises:
        InputError: k_eval is above the neighbours stored.
    """
    stored = retrieved.neighbours.ids.shape[1]
    require(k_eval <= stored, f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval")
    e = retrieved.embeddings
    val, test, y = e.rows(VAL), e.rows(TEST), np.asarray(e.y)
    y_fit = np.concatenate([one.embeddings.y[one.embeddings.rows(FIT)] for one in fits])
    near = retrieved.around(val, k_eval)
    on_val = near.sims.numpy(), near.labels.numpy(), y[val], retrieved.shares, choices_of_k(ks, k_eval)
    tuned: dict[str, Tuned] = {
        "uniform": tune_uniform(*on_val, priors),
        "distance": tune_distance(*on_val, temperatures, priors),
    }
    named: dict[str, Head] = {
        "uniform": Uniform(**tuned["uniform"]),  # type: ignore[arg-type]
        "distance": Distance(**tuned["distance"]),  # type: ignore[arg-type]
        **heads,
    }

    def votes(head: Head, one: Retrieved, part: int) -> np.ndarray:
        return classify(head, one, one.embeddings.rows(part), k_eval, device)

    def linear(one: Retrieved, part: int) -> np.ndarray:
        assert one.embeddings.logits is not None, "an encoder has a linear head in every fold or in none"
        logits = np.asarray(one.embeddings.logits[one.embeddings.rows(part)], dtype=np.float64)
        return softmax(logits, 1).clip(np.finfo(np.float32).tiny).astype(np.float32)

    # Probabilities on fit, val and test rows.
    probs = {
        name: (np.concatenate([votes(h, one, FIT) for one in fits]), votes(h, retrieved, VAL), votes(h, retrieved, TEST))
        for name, h in named.items()
    }
    if e.logits is not None:
        parts = linear(retrieved, VAL), linear(retrieved, TEST)
        probs["linear"] = (np.concatenate([linear(one, FIT) for one in fits]), *parts)
    for name in [name for name in probs if name != "prototypes"]:
        fit, on_val_rows, on_test_rows = probs[name]
        for kind in calibrations:
            made = calibrate(kind, fit, y_fit, on_val_rows, y[val], on_test_rows, ridges)
            probs[f"{name}_{kind}"] = fit, made.val, made.test
            tuned[f"{name}_{kind}"] = made.settings
    of_val, of_test = (
        Predictions(rows.astype(np.int32), y[rows], np.stack([p[i] for p in probs.values()]), tuple(probs), tuple(e.classes))
        for i, rows in ((1, val), (2, test))
    )
    return Compared(of_test, of_val, tuned)

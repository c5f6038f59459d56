"""Every method on the same rows: tuned on val, fitted on fit, read once on test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from attnknn.artifacts import FIT, TEST, VAL, Predictions
from attnknn.calibration import calibrate
from attnknn.classify import classify_part
from attnknn.errors import require
from attnknn.heads import Distance, Head, Uniform
from attnknn.neighbourhood import Retrieved, classes_of, pooled, voters
from attnknn.tuning import Tuned, choices_of_k, tune_distance, tune_uniform


@dataclass(frozen=True)
class Compared:
    """What every method answers on the test rows and on the val rows, and what was tuned or fitted for it."""

    test: Predictions
    val: Predictions
    tuned: dict[str, Tuned]


def compare(
    spaces: Sequence[Retrieved],
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
    `linear` where the encoder has a linear head; and each of these with each calibration, as
    `<method>_<calibration>`, fitted on fit rows.

    Args:
        spaces: embeddings whose val rows tune baselines and whose fit rows fit calibration: first the main ones, whose
            test rows are answered, then those of the folds of a cross-fit, if any.
        k_eval: the most neighbours any method may use.
        ks, temperatures, priors, ridges: grids; temperatures in units of `tuning.spread`.
        calibrations: kinds of `calibration.calibrate`.

    Raises:
        InputError: k_eval is above the neighbours stored.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    require(k_eval <= stored, f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval")
    main = spaces[0]
    y_fit, y_val, y_test = classes_of(spaces, FIT), classes_of(spaces, VAL), classes_of([main], TEST)
    on_val = *voters(spaces, VAL, k_eval), y_val, main.shares, choices_of_k(ks, k_eval)
    tuned: dict[str, Tuned] = {
        "uniform": tune_uniform(*on_val, priors),
        "distance": tune_distance(*on_val, temperatures, priors),
    }
    named: dict[str, Head] = {
        "uniform": Uniform(**tuned["uniform"]),  # type: ignore[arg-type]
        "distance": Distance(**tuned["distance"]),  # type: ignore[arg-type]
        **heads,
    }

    def linear(of: Sequence[Retrieved], part: int) -> np.ndarray:
        logits = np.concatenate([space.embeddings.logits[rows] for space, rows in pooled(of, part)])  # type: ignore[index]
        return softmax(logits.astype(np.float64), 1).clip(np.finfo(np.float32).tiny).astype(np.float32)

    # Probabilities on fit, val and test rows.
    asked = ((spaces, FIT), (spaces, VAL), ([main], TEST))
    probs = {
        name: tuple(classify_part(head, of, part, k_eval, device) for of, part in asked) for name, head in named.items()
    }
    if main.embeddings.logits is not None:
        probs["linear"] = tuple(linear(of, part) for of, part in asked)
    for name in list(probs):
        fit, on_val_rows, on_test_rows = probs[name]
        for kind in calibrations:
            made = calibrate(kind, fit, y_fit, on_val_rows, y_val, on_test_rows, ridges)
            probs[f"{name}_{kind}"] = fit, made.val, made.test
            tuned[f"{name}_{kind}"] = made.settings
    of_val, of_test = (
        Predictions(
            np.concatenate([rows for _, rows in pooled(of, part)]).astype(np.int32),
            y,
            np.stack([p[i] for p in probs.values()]),
            tuple(probs),
            tuple(main.embeddings.classes),
        )
        for i, (of, part, y) in ((1, (spaces, VAL, y_val)), (2, ([main], TEST, y_test)))
    )
    return Compared(of_test, of_val, tuned)

"""Every method on the same test rows: tuned on val, fitted on fit, read once on test."""

from collections.abc import Sequence

import numpy as np
import torch

from attnknn.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, Predictions
from attnknn.calibration import fit_temperature, fit_vector_scaling, vector_scale
from attnknn.classify import classify
from attnknn.errors import require
from attnknn.heads import Attention, Distance, Head, Uniform
from attnknn.tuning import Tuned, choices_of_k, tune_distance, tune_uniform
from attnknn.votes import class_shares


def _nll(probs: np.ndarray, y: np.ndarray) -> float:
    return -float(np.log(probs[np.arange(len(y)), y]).mean())


def _vector_scaled(
    fit: np.ndarray,
    y_fit: np.ndarray,
    val: np.ndarray,
    y_val: np.ndarray,
    test: np.ndarray,
    ridges: Sequence[float],
) -> tuple[np.ndarray, float]:
    """Test probabilities after vector scaling of log probabilities, fitted on fit, its ridge chosen on val."""
    fits = [fit_vector_scaling(np.log(fit), y_fit, ridge) for ridge in ridges]
    best = int(np.argmin([_nll(vector_scale(np.log(val), *f), y_val) for f in fits]))
    return vector_scale(np.log(test), *fits[best]), ridges[best]


def compare(
    embeddings: Embeddings,
    neighbours: Neighbours,
    attention: Attention,
    k_eval: int,
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    ridges: Sequence[float],
    device: str = "cpu",
) -> tuple[Predictions, dict[str, Tuned]]:
    """Test probabilities of every method, and what was tuned.

    Methods: `uniform` and `distance` (k, τ, ε by NLL on val), `distance_vector` (the same distance weighting, its log
    votes vector-scaled on fit rows, ridge by NLL on val), `attention` (with k_eval neighbours), and where the encoder
    has a linear head, `linear` and `linear_temperature` (T fitted on fit rows).

    Args:
        k_eval: the most neighbours any method may use.
        ks, temperatures, priors, ridges: grids; temperatures in units of `tuning.spread`.

    Raises:
        InputError: k_eval is above the neighbours stored.
    """
    stored = neighbours.ids.shape[1]
    require(
        k_eval <= stored,
        f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval",
    )
    fit, val, test = (embeddings.rows(part) for part in (FIT, VAL, TEST))
    y = np.asarray(embeddings.y)
    shares = class_shares(y[embeddings.rows(BANK)], len(embeddings.classes))
    ids, sims = neighbours.of(val, k_eval)
    labels = np.where(ids >= 0, y[ids], -1)
    ks = choices_of_k(ks, k_eval)
    tuned: dict[str, Tuned] = {
        "uniform": tune_uniform(sims, labels, y[val], shares, ks, priors),
        "distance": tune_distance(sims, labels, y[val], shares, ks, temperatures, priors),
    }
    uniform = Uniform(**tuned["uniform"])  # type: ignore[arg-type]
    distance = Distance(**tuned["distance"])  # type: ignore[arg-type]

    def votes(head: Head, rows: np.ndarray) -> np.ndarray:
        return classify(head, embeddings, neighbours, rows, k_eval, device=device)

    probs = {"uniform": votes(uniform, test), "distance": votes(distance, test)}
    probs["distance_vector"], ridge = _vector_scaled(
        votes(distance, fit), y[fit], votes(distance, val), y[val], probs["distance"], ridges
    )
    tuned["distance_vector"] = {"ridge": ridge}
    probs["attention"] = votes(attention.to(device), test)
    if embeddings.logits is not None:
        t = fit_temperature(np.asarray(embeddings.logits[fit]), y[fit])
        logits = torch.from_numpy(np.asarray(embeddings.logits[test])).double()
        probs["linear"] = logits.softmax(1).float().numpy()
        probs["linear_temperature"] = (logits / t).softmax(1).float().numpy()
        tuned["linear_temperature"] = {"temperature": t}
    return (
        Predictions(
            test.astype(np.int32),
            y[test],
            np.stack(list(probs.values())),
            tuple(probs),
            tuple(embeddings.classes),
        ),
        tuned,
    )

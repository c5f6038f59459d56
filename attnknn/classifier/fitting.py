"""Fit a head and its calibration on held-out rows."""

from typing import Any, NamedTuple, cast

import numpy as np
import torch

from attnknn.classifier.linear import with_logits
from attnknn.classifier.persistence import AnyHead
from attnknn.core.artifacts import FIT, VAL
from attnknn.evaluation.calibration import apply_scaling, blocks, fit_scaling
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.classify import classify_part
from attnknn.heads.fit import fit_head
from attnknn.neighbours.space import EmbeddingSpace, classes_of

# Chosen on the validation rows of the pipeline's datasets; see params.yaml.
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0)
PRIORS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5)
KS = (1, 3, 5, 10, 16, 20, 32, 50, 64)
FEATURES = ("distance", "gap", "label_share", "agreement", "density", "class_prior")
# What may score the null neighbours, and the head's part for it; the first wins a tie.
NULL_SCORES: dict[str, dict[str, bool]] = {"shares": {}, "means": {"prototypes": True}, "linear": {"linear": True}}
_MAX_LINEAR = 3e8  # rows · columns · classes, above which `auto` leaves the linear classifier out
_FEW, _SCREENING_EPOCHS = 2_000, 20  # with more FIT rows `auto` chooses after so many epochs


class FittedHead(NamedTuple):
    """A fitted head and its calibration."""

    head: AnyHead  # float64, on the CPU
    n_iter: int  # epochs; 1 for the baselines
    calibration: tuple[np.ndarray, np.ndarray]  # scale and bias (C,)
    votes: np.ndarray  # (M, C) of the VAL rows
    y: np.ndarray  # (M,) their classes
    strength: float | None = None  # C of the linear classifier that scores the null neighbours

    def val_nll(self) -> float:
        """NLL of the VAL rows, calibrated."""
        rows = blocks(*self.votes.shape)
        p_true = [apply_scaling(self.votes[b], *self.calibration)[b - b[0], self.y[b]] for b in rows]
        return -float(np.log(np.concatenate(p_true)).mean())


def fit_and_calibrate(spaces: list[EmbeddingSpace], params: dict[str, Any], seed: int, device: str) -> FittedHead:
    """Fit a head on FIT rows, with early stopping and calibration on VAL rows.

    Of several `null_scores` that of lowest NLL on VAL rows is taken, calibrated.

    Args:
        params: of `AttnKNNClassifier`.
    """
    k = int(min(params["n_neighbors"], *(space.neighbours.ids.shape[1] for space in spaces)))
    prior = params["prior"]
    priors = PRIORS if prior is None else (prior,)
    if params["weights"] != "attention":
        ks = choices_of_k(KS, k)
        head = tuned_baselines(spaces, ks, TEMPERATURES, priors)[0][params["weights"]]
        return _calibrated(head, 1, spaces, k, params, device)
    queries = sum(int((space.embeddings.part == FIT).sum()) for space in spaces)
    choices, strength = _choices(spaces, params), None
    if "linear" in choices:
        strength, spaces = with_logits(spaces)

    def fit(null_scores: str, epochs: int) -> FittedHead:
        parts = {"features": FEATURES, "learned_prior": prior is None, **NULL_SCORES[null_scores]}
        head, history = fit_head(
            spaces,
            k_train=k,
            kind="attention",
            parts=parts,
            epochs=epochs,
            batch_size=min(256, max(16, queries // 40)),
            lr=params["learning_rate"],
            weight_decay=0.05,
            patience=10,
            label_smoothing=0.0,
            hard_weight=1.0,
            entropy_weight=0.0,
            calibration_weight=0.0,
            temperatures=TEMPERATURES,
            priors=priors,
            seed=seed,
            device=device,
        )
        fitted = _calibrated(head, int(history[-1]["epoch"]), spaces, k, params, device)
        return fitted._replace(strength=strength if null_scores == "linear" else None)

    if len(choices) > 1 and queries > _FEW:
        epochs = min(params["max_iter"], _SCREENING_EPOCHS)
        choices = [min(choices, key=lambda choice: fit(choice, epochs).val_nll())]
    return min((fit(choice, params["max_iter"]) for choice in choices), key=FittedHead.val_nll)


def _choices(spaces: list[EmbeddingSpace], params: dict[str, Any]) -> list[str]:
    """The `null_scores` to choose among."""
    if params["null_scores"] != "auto":
        return [params["null_scores"]]
    if params["prototypes"] != "auto":
        return ["means" if params["prototypes"] else "shares"]
    e = spaces[0].embeddings
    without_linear = params["prior"] is not None or e.z.size * len(e.classes) > _MAX_LINEAR
    return [name for name in NULL_SCORES if name != "linear" or not without_linear]


def _calibrated(
    head: Any, n_iter: int, spaces: list[EmbeddingSpace], k: int, params: dict[str, Any], device: str
) -> FittedHead:
    """Calibrate a fitted head."""
    fit_votes, val_votes = (classify_part(head, spaces, part, k, device) for part in (FIT, VAL))
    y_fit, y_val = (classes_of(spaces, part) for part in (FIT, VAL))
    scaling = fit_scaling(params["calibration"], fit_votes, y_fit, val_votes, y_val)
    if isinstance(head, torch.nn.Module):
        head = head.double().cpu()
    return FittedHead(cast(AnyHead, head), n_iter, scaling, val_votes, y_val)

"""Fit a head and its calibration on held-out rows."""

from typing import Any, NamedTuple, cast

import numpy as np
import torch

from attnknn.classifier.linear import with_logits
from attnknn.classifier.persistence import AnyHead
from attnknn.core.artifacts import FIT, VAL
from attnknn.evaluation.calibration import fit_scaling, scaled_losses
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.classify import classify_part
from attnknn.heads.fit import fit_head
from attnknn.heads.label_noise import (
    RIGHT,
    LabelNoise,
    check_transition,
    estimate_label_noise,
    with_corrected_labels,
)
from attnknn.neighbours.space import EmbeddingSpace, classes_of

# Chosen on the validation rows of the pipeline's datasets; see params.yaml.
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0)
PRIORS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5)
KS = (1, 3, 5, 10, 16, 20, 32, 50, 64)
FEATURES = ("distance", "gap", "label_share", "agreement", "density", "class_prior")
# What may score the null neighbours, and the head's part for it; the first wins a tie.
NULL_SCORES: dict[str, dict[str, bool]] = {"shares": {}, "means": {"prototypes": True}, "linear": {"linear": True}}
_MAX_LINEAR = 3e8  # rows · columns · classes, above which `auto` leaves the linear classifier out
_NOISE_EPOCHS = 50  # of the head that estimates label noise
_FEW, _SCREENING_EPOCHS = 2_000, 20  # with more FIT rows `auto` chooses after so many epochs


class FittedHead(NamedTuple):
    """A fitted head and its calibration."""

    head: AnyHead  # float64, on the CPU
    n_iter: int  # epochs; 1 for the baselines
    calibration: tuple[np.ndarray, np.ndarray]  # scale and bias (C,)
    votes: np.ndarray  # (M, C) of the VAL rows
    y: np.ndarray  # (M,) their classes
    strength: float | None = None  # C of the linear classifier that scores the null neighbours
    noise: LabelNoise | None = None  # that the head was fitted through

    def losses(self) -> np.ndarray:
        """−log p (M,) of the labels of the VAL rows, calibrated."""
        return scaled_losses(self.votes, self.y, *self.calibration, _transition(self.noise))

    def val_nll(self) -> float:
        """Mean of `losses`."""
        return float(self.losses().mean())


def fit_and_calibrate(spaces: list[EmbeddingSpace], params: dict[str, Any], seed: int, device: str) -> FittedHead:
    """Fit a head on FIT rows, with early stopping and calibration on VAL rows.

    Of several `null_scores` that of lowest NLL on VAL rows is taken, calibrated. Estimated label noise is corrected
    unless this raises the NLL of the labels as given by two standard errors: then wrong labels are not alike in all
    rows of a class, or classes overlap and only look mislabelled.

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
    settings = {
        "k_train": k,
        "kind": "attention",
        "batch_size": min(256, max(16, queries // 40)),
        "lr": params["learning_rate"],
        "weight_decay": 0.05,
        "patience": 10,
        "label_smoothing": 0.0,
        "hard_weight": 1.0,
        "entropy_weight": 0.0,
        "calibration_weight": 0.0,
        "temperatures": TEMPERATURES,
        "priors": priors,
        "seed": seed,
        "device": device,
    }
    parts = {"features": FEATURES, "learned_prior": prior is None}
    noises: list[LabelNoise | None] = [None]
    if params["label_noise"] is not None:
        known = None if isinstance(params["label_noise"], str) else params["label_noise"]
        if known is not None:
            known = check_transition(known, len(spaces[0].embeddings.classes))
        noise = estimate_label_noise(
            spaces, known, parts=parts, epochs=min(params["max_iter"], _NOISE_EPOCHS), **settings
        )
        noises = [noise] if known is not None else [None, noise] if noise.wrong > RIGHT else [None]
    strengths: list[float | None] = [None] * len(noises)
    variants = [spaces if noise is None else with_corrected_labels(spaces, noise, seed, device) for noise in noises]
    names = _choices(spaces, params)
    if "linear" in names:
        fitted = [with_logits(v, _transition(noise)) for v, noise in zip(variants, noises, strict=True)]
        strengths, variants = [list(values) for values in zip(*fitted, strict=True)]

    def fit(null_scores: str, i: int, epochs: int) -> FittedHead:
        own = {"parts": parts | NULL_SCORES[null_scores], "epochs": epochs, "transition": _transition(noises[i])}
        head, history = fit_head(variants[i], **settings, **own)
        fitted = _calibrated(head, int(history[-1]["epoch"]), variants[i], k, params, device, noises[i])
        return fitted._replace(strength=strengths[i] if null_scores == "linear" else None)

    def best(i: int, epochs: int) -> tuple[str, FittedHead]:
        return min(((name, fit(name, i, epochs)) for name in names), key=lambda pair: pair[1].val_nll())

    if len(names) * len(noises) == 1:
        return fit(names[0], 0, params["max_iter"])
    screened = queries > _FEW
    epochs = min(params["max_iter"], _SCREENING_EPOCHS) if screened else params["max_iter"]
    candidates = [best(i, epochs) for i in range(len(noises))]
    i = int(len(noises) == 2 and not _significantly_above(candidates[1][1].losses(), candidates[0][1].losses()))
    name, fitted_head = candidates[i]
    return fit(name, i, params["max_iter"]) if screened else fitted_head


def _significantly_above(losses: np.ndarray, others: np.ndarray) -> bool:
    """Whether the mean of paired losses is above that of others by two standard errors."""
    difference = losses - others
    return bool(difference.mean() > 2 * difference.std() / np.sqrt(len(difference)))


def _transition(noise: LabelNoise | None) -> np.ndarray | None:
    return None if noise is None else noise.transition


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
    head: Any,
    n_iter: int,
    spaces: list[EmbeddingSpace],
    k: int,
    params: dict[str, Any],
    device: str,
    noise: LabelNoise | None = None,
) -> FittedHead:
    """Calibrate a fitted head."""
    fit_votes, val_votes = (classify_part(head, spaces, part, k, device) for part in (FIT, VAL))
    y_fit, y_val = (classes_of(spaces, part) for part in (FIT, VAL))
    scaling = fit_scaling(params["calibration"], fit_votes, y_fit, val_votes, y_val, _transition(noise))
    if isinstance(head, torch.nn.Module):
        head = head.double().cpu()
    return FittedHead(cast(AnyHead, head), n_iter, scaling, val_votes, y_val, noise=noise)

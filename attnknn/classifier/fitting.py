"""Fit a head and its calibration on held-out rows."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from attnknn.classifier.linear import with_logits
from attnknn.classifier.persistence import AnyHead
from attnknn.core.artifacts import FIT, VAL
from attnknn.core.progress import epoch_progress
from attnknn.evaluation.calibration import fit_scaling, scaled_losses
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.classify import classify_part
from attnknn.heads.fit import fit_head
from attnknn.heads.label_noise import LabelNoise, estimate_label_noise, significantly_above, with_corrected_labels
from attnknn.heads.transition import check_transition, too_few_rows
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
    spaces: Sequence[EmbeddingSpace] = ()  # with the labels and logits that it was fitted with

    def losses(self) -> np.ndarray:
        """−log p (M,) of the labels of the VAL rows, calibrated."""
        return scaled_losses(self.votes, self.y, *self.calibration, _transition(self.noise))


def fit_and_calibrate(
    spaces: list[EmbeddingSpace], params: dict[str, Any], seed: int, device: str, held_out: bool = False
) -> FittedHead:
    """Fit a head on FIT rows, with early stopping and calibration on VAL rows.

    Of several `null_scores` that of lowest NLL on VAL rows is taken, calibrated. Estimated label noise is corrected
    unless this raises the NLL of the labels as given by two standard errors: then wrong labels are not alike in all
    rows of a class, or classes overlap and only look mislabelled.

    Args:
        params: of `AttnKNNClassifier`.
        held_out: see `estimate_label_noise`.
    """
    settings = _settings(spaces, params, seed, device)
    k, parts, queries = settings["k_train"], settings.pop("parts"), _n_queries(spaces)
    if params["weights"] != "attention":
        ks = choices_of_k(KS, k)
        head = tuned_baselines(spaces, ks, TEMPERATURES, settings["priors"])[0][params["weights"]]
        return _calibrated(head, 1, spaces, k, params, device)
    noises: list[LabelNoise | None] = [None]
    if params["label_noise"] is not None:
        e, known = spaces[0].embeddings, params["label_noise"]
        known = None if isinstance(known, str) else check_transition(known, len(e.classes))
        if known is not None or not too_few_rows(len(e.y), len(e.classes)):
            noise = estimate_noise(spaces, params, seed, device, held_out, known)
            noises = [noise] if known is not None else [None, noise] if noise.evident else [None]
    names = _choices(spaces, params)

    @cache
    def labelled(i: int) -> tuple[float | None, list[EmbeddingSpace]]:
        """The spaces with labels corrected for a choice of noise, and logits of a linear classifier with its C."""
        noise = noises[i]
        strength, own = with_logits(spaces, _transition(noise)) if "linear" in names else (None, spaces)
        return strength, own if noise is None else with_corrected_labels(own, noise, seed, device)

    def fit(i: int, name: str, epochs: int) -> FittedHead:
        strength, own = labelled(i)
        choice = {"parts": parts | NULL_SCORES[name], "epochs": epochs, "transition": _transition(noises[i])}
        with epoch_progress(f"fit head, {name}", epochs, bool(params["verbose"])) as show:
            head, history = fit_head(own, **settings, **choice, progress=show)
        fitted = _calibrated(head, int(history[-1]["epoch"]), own, k, params, device, noises[i])
        return fitted._replace(strength=strength if name == "linear" else None)

    def best(i: int, epochs: int) -> tuple[int, str, FittedHead]:
        fitted = [(i, name, fit(i, name, epochs)) for name in names]
        return min(fitted, key=lambda choice: choice[2].losses().mean())

    screened = len(names) * len(noises) > 1 and queries > _FEW
    epochs = min(params["max_iter"], _SCREENING_EPOCHS) if screened else params["max_iter"]
    (i, name, result), *others = (best(i, epochs) for i in range(len(noises)))
    for corrected in others:
        if not significantly_above(corrected[2].losses(), result.losses()):
            i, name, result = corrected
    return fit(i, name, params["max_iter"]) if screened else result


def _n_queries(spaces: list[EmbeddingSpace]) -> int:
    return sum(int((space.embeddings.part == FIT).sum()) for space in spaces)


def _settings(spaces: list[EmbeddingSpace], params: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
    """Arguments of `fit_head`."""
    prior = params["prior"]
    return {
        "k_train": int(min(params["n_neighbors"], *(space.neighbours.ids.shape[1] for space in spaces))),
        "kind": "attention",
        "parts": {"features": FEATURES, "learned_prior": prior is None},
        "batch_size": min(256, max(16, _n_queries(spaces) // 40)),
        "lr": params["learning_rate"],
        "weight_decay": 0.05,
        "patience": 10,
        "label_smoothing": 0.0,
        "hard_weight": 1.0,
        "entropy_weight": 0.0,
        "calibration_weight": 0.0,
        "temperatures": TEMPERATURES,
        "priors": PRIORS if prior is None else (prior,),
        "seed": seed,
        "device": device,
    }


def estimate_noise(
    spaces: list[EmbeddingSpace],
    params: dict[str, Any],
    seed: int,
    device: str,
    held_out: bool = False,
    transition: np.ndarray | None = None,
) -> LabelNoise:
    """`estimate_label_noise` with a classifier's parameters."""
    settings = _settings(spaces, params, seed, device)
    return estimate_label_noise(spaces, transition, held_out, epochs=_NOISE_EPOCHS, **settings)


def _transition(noise: LabelNoise | None) -> np.ndarray | None:
    return None if noise is None else noise.transition


def _choices(spaces: list[EmbeddingSpace], params: dict[str, Any]) -> list[str]:
    """The `null_scores` to choose among."""
    if params["null_scores"] != "auto":
        return [params["null_scores"]]
    if params["prototypes"] != "auto":
        return ["means" if params["prototypes"] else "shares"]
    e = spaces[0].embeddings
    without_linear = (
        params["prior"] is not None or params["storage"] is not None or e.z.size * len(e.classes) > _MAX_LINEAR
    )
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
    return FittedHead(cast(AnyHead, head), n_iter, scaling, val_votes, y_val, None, noise, spaces)

"""Fit a head and its calibration on held-out rows."""

from typing import Any, NamedTuple, cast

import numpy as np
import torch

from attnknn.classifier.persistence import AnyHead
from attnknn.core.artifacts import FIT, VAL
from attnknn.evaluation.calibration import fit_scaling
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


class FittedHead(NamedTuple):
    """A fitted head and its calibration."""

    head: AnyHead  # float64, on the CPU
    n_iter: int  # epochs; 1 for the baselines
    calibration: tuple[np.ndarray, np.ndarray]  # scale and bias (C,)
    votes: np.ndarray  # (M, C) of the VAL rows
    y: np.ndarray  # (M,) their classes


def fit_and_calibrate(spaces: list[EmbeddingSpace], params: dict[str, Any], seed: int, device: str) -> FittedHead:
    """Fit a head on FIT rows, with early stopping and calibration on VAL rows.

    Args:
        params: of `AttnKNNClassifier`.
    """
    k = int(min(params["n_neighbors"], *(space.neighbours.ids.shape[1] for space in spaces)))
    prior = params["prior"]
    priors = PRIORS if prior is None else (prior,)
    if params["weights"] == "attention":
        queries = sum(int((space.embeddings.part == FIT).sum()) for space in spaces)
        prototypes = bool(params["prototypes"])
        head, history = fit_head(
            spaces,
            k_train=k,
            kind="attention",
            parts={"features": FEATURES, "prototypes": prototypes, "learned_prior": prior is None},
            epochs=params["max_iter"],
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
        n_iter = int(history[-1]["epoch"])
    else:
        n_iter, ks = 1, choices_of_k(KS, k)
        head = tuned_baselines(spaces, ks, TEMPERATURES, priors)[0][params["weights"]]
    fit_votes, val_votes = (classify_part(head, spaces, part, k, device) for part in (FIT, VAL))
    y_fit, y_val = (classes_of(spaces, part) for part in (FIT, VAL))
    scaling = fit_scaling(params["calibration"], fit_votes, y_fit, val_votes, y_val)
    if isinstance(head, torch.nn.Module):
        head = head.double().cpu()
    return FittedHead(cast(AnyHead, head), n_iter, scaling, val_votes, y_val)

"""Why a classifier answers as it does."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Explanation:
    """Why queries are answered as they are: what each neighbour says, and how much it counts.

    Attributes:
        ids: (B, K) rows of the memory, nearest first, as `kneighbors` and `forget` name them.
        labels: (B, K) their classes.
        distances: (B, K).
        weights: (B, K) their shares in the votes.
        null: (B, C) what the votes give each class without any neighbour: by its mean where `prototypes` may vote, else
            by its share of the memory. With `weights` a row sums to 1.
        votes: (B, C), null plus the weights of each class's neighbours.
        probabilities: (B, C), the votes calibrated, as `predict_proba` gives them.
        predictions: (B,).
        shares: (B, K) share of each neighbour in the votes for the class that is answered; 0 for other labels.
    """

    ids: np.ndarray
    labels: np.ndarray
    distances: np.ndarray
    weights: np.ndarray
    null: np.ndarray
    votes: np.ndarray
    probabilities: np.ndarray
    predictions: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True)
class Counterfactual:
    """What would change an answer.

    Attributes:
        how: `forget` or `relabel`.
        ids: (M,) rows of the memory to forget, or to give another label, heaviest first.
        label: the answer that is second, which `relabel` gives them.
        prediction: the answer once that is done.
        probabilities: (C,) then.
        turned: whether that is another answer; else none was found within as many rows as were allowed.
    """

    how: str
    ids: np.ndarray
    label: Any
    prediction: Any
    probabilities: np.ndarray
    turned: bool

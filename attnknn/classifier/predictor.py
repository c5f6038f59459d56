"""Predictions of a memory, a head and a calibration, and their explanations. Classes are numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from attnknn.classifier.memory import Memory
from attnknn.classifier.persistence import AnyHead
from attnknn.evaluation.calibration import apply_scaling

_SEARCHED, _BATCH = 16_384, 1024  # queries searched, and passed through the head, at once


@dataclass(frozen=True)
class Explanation:
    """Why queries get their predictions: each neighbour's label and weight.

    Attributes:
        ids: (B, K) rows of the memory, nearest first, as `kneighbors` and `forget` name them.
        labels: (B, K) their classes.
        distances: (B, K).
        weights: (B, K) their attention weights.
        null: (B, C) weights of the null neighbours, by which each class gets votes without any neighbour: by its mean
            where `prototypes` may vote, else by its share of the memory. With `weights` a row sums to 1.
        votes: (B, C), null plus the weights of each class's neighbours.
        probabilities: (B, C), the calibrated votes, as `predict_proba` gives them.
        predictions: (B,).
        shares: (B, K) share of each neighbour in the votes for the predicted class; 0 for other labels.
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
    """A change of the memory that changes a prediction.

    Attributes:
        how: `forget` or `relabel`.
        ids: (M,) rows of the memory to forget, or to relabel, heaviest first.
        label: the second most probable class, which `relabel` gives them.
        prediction: the prediction after the change.
        probabilities: (C,) after the change.
        turned: whether the prediction is another one; if not, none was found within the rows allowed.
    """

    how: str
    ids: np.ndarray
    label: Any
    prediction: Any
    probabilities: np.ndarray
    turned: bool


@dataclass(frozen=True)
class Predictor:
    """Predictions for queries.

    Attributes:
        memory: the rows that vote.
        head: weighs them; in float64 on the CPU.
        scale, bias: (C,) of the calibration; see `calibration.apply_scaling`.
        smoothing: weight of the class shares in every prediction.
        k: neighbours; all of the memory where it has fewer.
        device: where neighbours are searched.
    """

    memory: Memory
    head: AnyHead
    scale: np.ndarray
    bias: np.ndarray
    smoothing: float
    k: int
    device: str

    def calibrated(self, votes: Float[np.ndarray, "B C"], without: Sequence[int] = ()) -> Float[np.ndarray, "B C"]:
        """Calibrated probabilities of votes."""
        shares = self.memory.classes(without)[0].double().numpy()
        return (1 - self.smoothing) * apply_scaling(votes, self.scale, self.bias) + self.smoothing * shares

    def probabilities(self, z: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]:
        """Calibrated probabilities of queries, float64."""
        return self.calibrated(np.concatenate([votes for *_, votes in self.batches(z)]))

    @torch.inference_mode()
    def batches(
        self, z: Float[np.ndarray, "B D"], without: Sequence[int] = ()
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ids, similarities, weights (B, K) and votes (B, C) of a batch of queries at a time.

        Args:
            without: ids of rows taken as removed.
        """
        k = min(self.k, len(self.memory) - len(without))
        for queries in (z[start : start + _SEARCHED] for start in range(0, len(z), _SEARCHED)):
            ids, neighbours = self.memory.retrieve(queries, k, self.head.needs, self.device, without)
            for rows in torch.arange(len(queries)).split(_BATCH):
                batch = neighbours.take(rows)
                votes, weights = self.head(batch.to(torch.float64))
                yield ids[rows.numpy()], batch.sims.numpy(), weights.numpy(), votes.numpy()

    def explain(self, z: Float[np.ndarray, "B D"], without: Sequence[int] = ()) -> Explanation:
        """Explanations in which `distances` are similarities, and labels class numbers."""
        ids, sims, weights, votes = (np.concatenate(arrays) for arrays in zip(*self.batches(z, without), strict=True))
        labels, rows = self.memory.y[self.memory.positions(ids)], np.arange(len(z))
        null = votes.copy()
        np.subtract.at(null, (rows[:, None], labels), weights)
        probabilities = self.calibrated(votes, without)
        top = probabilities.argmax(1)
        shares = np.where(labels == top[:, None], weights, 0) / votes[rows, top][:, None]
        return Explanation(ids, labels, sims, weights, null.clip(0), votes, probabilities, top, shares)

    def counterfactual(
        self, z: Float[np.ndarray, "1 D"], how: str, most: int, itself: Sequence[int] = ()
    ) -> Counterfactual:
        """Greedy search, one neighbour a step; see `AttnKNNClassifier.counterfactual`.

        Args:
            itself: ids of rows taken as removed from the first.
        """
        changed: list[int] = []
        first = second = -1
        neighbour_ids = np.empty(0, dtype=np.int64)  # relabelling does not change them
        while True:
            without = [*itself, *changed] if how == "forget" else itself
            predictor = self
            if how == "relabel" and changed:
                predictor = replace(self, memory=self.memory.relabelled(changed, second, neighbour_ids))
            ((ids, _, weights, votes),) = predictor.batches(z, without)
            probabilities = predictor.calibrated(votes, without)[0]
            top, runner_up = (int(c) for c in np.argsort(-probabilities, kind="stable")[:2])
            if not changed:
                first, second, neighbour_ids = top, runner_up, ids[0]
            labels = predictor.memory.y[self.memory.positions(ids[0])]
            supporting = np.where(labels == first, weights[0], 0.0)
            heaviest = int(supporting.argmax())
            possible = len(changed) < min(most, len(self.memory) - len(itself) - 2) and supporting[heaviest] > 0
            if top != first or not possible:
                return Counterfactual(how, np.array(changed, dtype=np.int64), second, top, probabilities, top != first)
            changed.append(int(ids[0, heaviest]))

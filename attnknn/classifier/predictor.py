"""A memory, a head and a calibration: from vectors to votes, probabilities and what decided. Classes are numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from attnknn.classifier.memory import Memory
from attnknn.classifier.persistence import AnyHead
from attnknn.evaluation.calibration import scaled

_SEARCHED, _BATCH = 16_384, 1024  # queries searched for, and answered, at once


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


@dataclass(frozen=True)
class Predictor:
    """Answers for queries.

    Attributes:
        memory: the rows that vote.
        head: what weighs them, in float64 on the CPU.
        scale, bias: (C,) of the calibration; see `vote_scaling.scaled`.
        doubt: share of the class shares in every answer.
        k: neighbours; all there are where the memory has fewer.
        device: where neighbours are searched.
    """

    memory: Memory
    head: AnyHead
    scale: np.ndarray
    bias: np.ndarray
    doubt: float
    k: int
    device: str

    def calibrated(self, votes: Float[np.ndarray, "B C"], without: Sequence[int] = ()) -> Float[np.ndarray, "B C"]:
        """Probabilities of votes."""
        shares = self.memory.classes(without)[0].double().numpy()
        return (1 - self.doubt) * scaled(votes, self.scale, self.bias) + self.doubt * shares

    def probabilities(self, z: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]:
        """Float64; rows sum to 1."""
        return self.calibrated(np.concatenate([votes for *_, votes in self.parts(z)]))

    @torch.inference_mode()
    def parts(
        self, z: Float[np.ndarray, "B D"], without: Sequence[int] = ()
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Ids, similarities, weights (B, K) and votes (B, C), a batch at a time.

        Args:
            without: ids of rows taken as forgotten.
        """
        k = min(self.k, len(self.memory) - len(without))
        for asked in (z[s : s + _SEARCHED] for s in range(0, len(z), _SEARCHED)):
            ids, near = self.memory.around(asked, k, self.head.needs, self.device, without)
            for at in torch.arange(len(asked)).split(_BATCH):
                some = near.take(at)
                votes, weights = self.head(some.to(torch.float64))
                yield ids[at.numpy()], some.sims.numpy(), weights.numpy(), votes.numpy()

    def explained(self, z: Float[np.ndarray, "B D"], without: Sequence[int] = ()) -> Explanation:
        """What decided each answer; distances are similarities still, and labels class numbers."""
        ids, sims, weights, votes = (np.concatenate(of) for of in zip(*self.parts(z, without), strict=True))
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
        """See `AttnKNNClassifier.counterfactual`; `itself` are ids of rows taken as forgotten from the first."""
        taken: list[int] = []
        first = second = -1
        near = np.empty(0, dtype=np.int64)  # neighbours, which other labels do not change
        while True:
            gone = [*itself, *taken] if how == "forget" else itself
            changed = self
            if how == "relabel" and taken:
                changed = replace(self, memory=self.memory.relabelled(taken, second, near))
            ((ids, _, weights, votes),) = changed.parts(z, gone)
            probabilities = changed.calibrated(votes, gone)[0]
            top, next_to_it = (int(c) for c in np.argsort(-probabilities, kind="stable")[:2])
            if not taken:
                first, second, near = top, next_to_it, ids[0]
            for_it = np.where(changed.memory.y[self.memory.positions(ids[0])] == first, weights[0], 0.0)
            heaviest = int(for_it.argmax())
            can = len(taken) < min(most, len(self.memory) - len(itself) - 2) and for_it[heaviest] > 0
            if top != first or not can:
                return Counterfactual(how, np.array(taken, dtype=np.int64), second, top, probabilities, top != first)
            taken.append(int(ids[0, heaviest]))

"""Predict and explain from a memory, a head and a calibration. Classes are numbers 0 … C−1."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from attnknn.classifier.explanation import Counterfactual, Explanation
from attnknn.classifier.nearest import BaseMemory, Nearest
from attnknn.classifier.novelty import REACH, Novelty
from attnknn.classifier.persistence import AnyHead
from attnknn.evaluation.calibration import apply_scaling

_SEARCH_BATCH, _HEAD_BATCH = 16_384, 1024  # queries


@dataclass(frozen=True)
class Predictor:
    """Predict class probabilities of queries."""

    memory: BaseMemory
    head: AnyHead  # float64, on the CPU
    scale: np.ndarray  # (C,) of the calibration; see `calibration.apply_scaling`
    bias: np.ndarray  # (C,)
    smoothing: float  # weight of the class shares in every prediction
    k: int  # number of neighbours; all rows if the memory has fewer
    device: str  # of the neighbour search
    novelty: Novelty | None = None

    def calibrated(self, votes: Float[np.ndarray, "B C"], without: Sequence[int] = ()) -> Float[np.ndarray, "B C"]:
        """Calibrated probabilities of votes."""
        shares = self.memory.classes(without)[0].double().numpy()
        return (1 - self.smoothing) * apply_scaling(votes, self.scale, self.bias) + self.smoothing * shares

    def predict(
        self, z: Float[np.ndarray, "B D"]
    ) -> tuple[Float[np.ndarray, "B C"], Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:
        """Calibrated probabilities of queries, float64, similarities of their nearest neighbours, and novelty."""
        parts = [(votes, rows.sims[:, :REACH], rows.density[:, :REACH]) for rows, _, votes in self.batches(z)]
        votes, sims, density = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        probabilities = self.calibrated(votes)
        return probabilities, sims[:, 0], self.p_values(sims, density, probabilities)

    def p_values(
        self, sims: Float[np.ndarray, "B K"], density: Float[np.ndarray, "B K"], probs: Float[np.ndarray, "B C"]
    ) -> Float[np.ndarray, " B"]:
        """See `Novelty`; NaN for models that were saved without one."""
        if self.novelty is None:
            return np.full(len(sims), np.nan)
        return self.novelty.p_values(sims[:, :REACH], density[:, :REACH], probs.max(1))

    @torch.inference_mode()
    def batches(
        self, z: Float[np.ndarray, "B D"], without: Sequence[int] = ()
    ) -> Iterator[tuple[Nearest, np.ndarray, np.ndarray]]:
        """Yield the nearest rows, weights (B, K) and votes (B, C) in batches of queries; `without` ids of rows."""
        k = min(self.k, len(self.memory) - len(without))
        for start in range(0, len(z), _SEARCH_BATCH):
            queries = z[start : start + _SEARCH_BATCH]
            nearest, neighbours = self.memory.retrieve(queries, k, self.head.needs, self.device, without)
            for rows in torch.arange(len(queries)).split(_HEAD_BATCH):
                batch = neighbours.take(rows)
                votes, weights = self.head(batch.to(torch.float64))
                yield nearest.take(rows.numpy()), weights.numpy(), votes.numpy()

    def explain(self, z: Float[np.ndarray, "B D"], without: Sequence[int] = ()) -> Explanation:
        """Explain predictions; distances and their percentiles are similarities here, and labels class numbers."""
        batches = list(self.batches(z, without))
        ids, sims, labels, given_y, added, density = (
            np.concatenate([getattr(nearest, name) for nearest, _, _ in batches])
            for name in ("ids", "sims", "y", "given_y", "added", "density")
        )
        weights, votes = (np.concatenate(arrays) for arrays in zip(*(batch[1:] for batch in batches), strict=True))
        rows, null = np.arange(len(z)), votes.copy()
        np.subtract.at(null, (rows[:, None], labels), weights)
        probabilities = self.calibrated(votes, without)
        top = probabilities.argmax(1)
        shares = np.where(labels == top[:, None], weights, 0) / votes[rows, top][:, None]
        null = null.clip(0)
        null_share = null[rows, top] / votes[rows, top]
        fields = ids, labels, sims, weights, null, votes, probabilities, top
        novelty = self.p_values(sims, density, probabilities)
        return Explanation(*fields, shares, null_share, sims[:, 0], given_y, added, novelty)

    def counterfactual(
        self, z: Float[np.ndarray, "1 D"], how: str, most: int, exclude: Sequence[int] = ()
    ) -> Counterfactual:
        """Greedy search, one neighbour a step, without the rows `exclude`; see `AttnKNNClassifier.counterfactual`."""
        changed: list[int] = []
        first = second = -1
        neighbour_ids = np.empty(0, dtype=np.int64)  # relabelling does not change them
        while True:
            without = [*exclude, *changed] if how == "forget" else exclude
            predictor = self
            if how == "relabel" and changed:
                predictor = replace(self, memory=self.memory.relabelled(changed, second, neighbour_ids))
            ((nearest, weights, votes),) = predictor.batches(z, without)
            probabilities = predictor.calibrated(votes, without)[0]
            top, runner_up = (int(c) for c in np.argsort(-probabilities, kind="stable")[:2])
            if not changed:
                first, second, neighbour_ids = top, runner_up, nearest.ids[0]
            supporting = np.where(nearest.y[0] == first, weights[0], 0.0)
            heaviest = int(supporting.argmax())
            possible = len(changed) < min(most, len(self.memory) - len(exclude) - 2) and supporting[heaviest] > 0
            if top != first or not possible:
                return Counterfactual(how, np.array(changed, dtype=np.int64), second, top, probabilities, top != first)
            changed.append(int(nearest.ids[0, heaviest]))

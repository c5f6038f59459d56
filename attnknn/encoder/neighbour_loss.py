"""Leave-one-out kNN loss of the encoder: bank rows vote on each row of a batch, the row itself excluded."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnknn.core.errors import require
from attnknn.nn.objectives import entropy, hard_weights, hardness, nll, soft_ece
from attnknn.nn.votes import class_shares, distance_weights, vote

_EXCLUDED = -1e6  # similarity whose softmax weight is 0 at any temperature


class NeighbourLoss(nn.Module):
    """L = w_knn · NLL(p, y) − w_ent · H(w) + w_cal · softECE(p, y), p the distance-weighted vote of bank rows.

    A memory bank holds an embedding of every bank row, without gradient (SNCA, Wu et al. 2018). Search is exact and
    excludes the row itself by its id; wᵢ = (1 − ε)·softmax(−‖z − kᵢ‖²/τ) over the k nearest, τ learned, and ε goes to
    the class shares, so that no class has probability 0. Terms of weight 0 are not computed.

    With `candidates` there is no memory bank: a random share of the bank is embedded with each batch, and all of it and
    the batch's other rows vote, with gradients (NCA, Goldberger et al. 2004; sampled as in ModernNCA, Ye et al. 2025).

    Args:
        y: labels (N,) of the bank rows; a row's id is its position.
        n_classes, embed_dim: C and D.
        knn, entropy, calibration: the weights.
        label_smoothing: label smoothing of the NLL.
        candidates: sampled share of the bank; 0 takes the memory bank.
        k: neighbours in the memory bank.
        temperature, prior: initial τ, and ε.
        hard_weight: factor h of the NLL's row weights; see `objectives.hard_weights`.

    Raises:
        InputError: there are too few bank rows for k neighbours.
    """

    memory: Tensor
    labels: Tensor
    shares: Tensor

    def __init__(
        self,
        y: np.ndarray,
        n_classes: int,
        embed_dim: int,
        *,
        knn: float = 1.0,
        entropy: float = 0.0,
        calibration: float = 0.0,
        label_smoothing: float = 0.0,
        candidates: float = 0.0,
        k: int = 50,
        temperature: float = 0.1,
        prior: float = 0.01,
        hard_weight: float = 1.0,
    ) -> None:
        super().__init__()
        largest = len(y) - 2  # both rows of a MixUp pair are excluded
        message = f"train_embedder.knn.k: {k} is more than {len(y)} bank rows can give; at most {largest}"
        require(candidates > 0 or k <= largest, message)
        self.candidates = candidates
        self.weights = {"knn": knn, "entropy": entropy, "calibration": calibration}
        self.label_smoothing, self.hard_weight = label_smoothing, hard_weight
        self.k, self.prior = k, prior
        self.log_temperature = nn.Parameter(torch.tensor(float(np.log(temperature))))
        self.register_buffer("memory", torch.zeros(len(y), embed_dim))
        self.register_buffer("labels", torch.from_numpy(np.array(y, np.int64)))
        self.register_buffer("shares", class_shares(np.asarray(y), n_classes))

    @torch.no_grad()
    def fill(self, z: Float[Tensor, "N D"]) -> None:
        """Replace the memory bank by new embeddings of all bank rows."""
        self.memory.copy_(z)

    @torch.no_grad()
    def search(self, z: Float[Tensor, "B D"], excluded: Int[Tensor, "B E"]) -> Int[Tensor, "B K"]:
        """Ids of the k nearest rows of the memory bank, nearest first, except the excluded ones."""
        sims = z @ self.memory.T  # (B, N); of unit vectors, the nearest are those of largest inner product
        return sims.scatter_(1, excluded, -torch.inf).topk(self.k).indices

    def draw(self, rows: Int[Tensor, " B"], generator: torch.Generator) -> Int[Tensor, " M"] | None:
        """Sample the ids of a batch's candidates among the other bank rows; None with a memory bank."""
        if not self.candidates:
            return None
        n = len(self.labels)
        sample = torch.randperm(n, generator=generator)[: max(1, round(self.candidates * n))].to(rows.device)
        return sample[~torch.isin(sample, rows)]

    def _sims(
        self, z: Tensor, excluded: Tensor, rows: Tensor, candidates: tuple[Tensor, Tensor] | None
    ) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
        """−‖z − kᵢ‖² and labels of the voting rows of each query."""
        if candidates is None:
            ids = self.search(z.detach(), excluded)
            return -(z[:, None] - self.memory[ids]).square().sum(2), self.labels[ids]
        ids, keys = torch.cat([rows, candidates[0]]), torch.cat([z, candidates[1]])
        sims = 2 * z @ keys.T - 2  # of unit vectors
        # Finite, because 0 · ∞ would make the temperature's gradient NaN.
        return sims.masked_fill(ids == rows[:, None], _EXCLUDED), self.labels[ids].expand(len(z), -1)

    def forward(
        self,
        z: Float[Tensor, "B D"],
        rows: Int[Tensor, " B"],
        partners: Int[Tensor, " B"] | None = None,
        share: float = 1.0,
        candidates: tuple[Int[Tensor, " M"], Float[Tensor, "M D"]] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            z: unit embeddings of the rows or, with partners, of λ·x[rows] + (1 − λ)·x[partners].
            rows: ids of the rows.
            partners: ids of MixUp's second rows. The neighbours are those of the mixture, both rows excluded, and the
                NLL is λ·NLL(p, y) + (1 − λ)·NLL(p, y′).
            share: λ.
            candidates: ids and unit embeddings of the candidates; None takes the k nearest of the memory bank.

        Raises:
            ValueError: the calibration term has a weight and rows are mixed; a mixture has no single label.
        """
        if partners is not None and self.weights["calibration"]:
            raise ValueError("the calibration term needs rows of one label; MixUp gives them two")
        targets = [(rows, 1.0)] if partners is None else [(rows, share), (partners, 1 - share)]
        excluded = torch.stack([row_ids for row_ids, _ in targets], dim=1)
        sims, labels = self._sims(z, excluded, rows, candidates)  # (B, K)
        weights, null = distance_weights(sims / self.log_temperature.exp(), sims.shape[1], 1.0, self.prior)
        probs = vote(weights, null, labels, self.shares)
        total = torch.zeros((), device=z.device)
        if self.weights["knn"]:
            for row_ids, part in targets:
                y = self.labels[row_ids]
                importance = hard_weights(hardness(labels, y), self.hard_weight)
                total = total + self.weights["knn"] * part * nll(probs, y, self.label_smoothing, importance)
        if self.weights["entropy"]:
            total = total - self.weights["entropy"] * entropy(weights)
        if self.weights["calibration"]:
            total = total + self.weights["calibration"] * soft_ece(probs, self.labels[rows])
        return total

"""The kNN objective of the encoder: bank rows vote for a row of the batch, without the row itself."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnknn.core.errors import require
from attnknn.nn.objectives import entropy, hard_weights, hardness, nll, soft_ece
from attnknn.nn.votes import class_shares, distance_weights, vote

_NOBODY = -1e6  # a similarity that has no weight at any temperature


class NeighbourLoss(nn.Module):
    """L = w_knn · NLL(p, y) − w_ent · H(w) + w_cal · softECE(p, y), p the distance-weighted vote of the memory.

    The memory holds an embedding of every bank row (SNCA, Wu et al. 2018), with no gradient. The k nearest to z are
    found exactly, the row itself left out by its id, and wᵢ = (1 − ε)·softmax(−‖z − kᵢ‖²/τ), τ learned; ε votes for
    the class shares, so that no class has probability 0. Terms of weight 0 are not computed.

    With `candidates` there is no memory: a random share of the bank is embedded with each batch, and all of it votes,
    the batch's other rows with it, whose embeddings then learn too (NCA, Goldberger et al. 2004, with the sampling of
    ModernNCA, Ye et al. 2025).

    Args:
        y: labels (N,) of the bank rows; a row's id is its position.
        n_classes: C.
        embed_dim: D.
        knn, entropy, calibration: the weights.
        label_smoothing: of the NLL.
        candidates: their share of the bank; 0 takes the memory.
        k: neighbours, of the memory.
        temperature: τ at the start.
        prior: ε.
        refresh: epochs after which all rows are embedded again.
        momentum: m of `update`; 1 leaves the memory as it is between refreshes.
        hard_weight: weight in the NLL of a query whose neighbours all disagree, relative to one whose all agree.
        bins, sharpness: of the soft ECE.

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
        refresh: int = 1,
        momentum: float = 1.0,
        hard_weight: float = 1.0,
        bins: int = 15,
        sharpness: float = 1000.0,
    ) -> None:
        super().__init__()
        # Both rows of a MixUp pair are left out.
        require(
            candidates > 0 or k <= len(y) - 2,
            f"train_embedder.knn.k: {k} is more than {len(y)} bank rows can give; at most {len(y) - 2}",
        )
        self.candidates = candidates
        self.weights = {"knn": knn, "entropy": entropy, "calibration": calibration}
        self.label_smoothing, self.hard_weight = label_smoothing, hard_weight
        self.k, self.prior, self.refresh, self.momentum = k, prior, refresh, momentum
        self.bins, self.sharpness = bins, sharpness
        self.log_temperature = nn.Parameter(torch.tensor(float(np.log(temperature))))
        self.register_buffer("memory", torch.zeros(len(y), embed_dim))
        self.register_buffer("labels", torch.from_numpy(np.array(y, np.int64)))
        self.register_buffer("shares", class_shares(np.asarray(y), n_classes))

    @torch.no_grad()
    def fill(self, z: Float[Tensor, "N D"]) -> None:
        """Put new embeddings of all bank rows into the memory."""
        self.memory.copy_(z)

    @torch.no_grad()
    def update(self, rows: Int[Tensor, " B"], z: Float[Tensor, "B D"]) -> None:
        """Move the rows of a batch towards their new embeddings: m·old + (1 − m)·z, brought back to length 1."""
        if self.momentum < 1:
            self.memory[rows] = F.normalize(self.momentum * self.memory[rows] + (1 - self.momentum) * z, dim=1)

    @torch.no_grad()
    def search(self, z: Float[Tensor, "B D"], excluded: Int[Tensor, "B E"]) -> Int[Tensor, "B K"]:
        """Ids of the k nearest rows in the memory, nearest first, without those excluded."""
        sims = z @ self.memory.T  # (B, N); of unit vectors, the nearest are those of largest inner product
        return sims.scatter_(1, excluded, -torch.inf).topk(self.k).indices

    def draw(self, rows: Int[Tensor, " B"], generator: torch.Generator) -> Int[Tensor, " M"] | None:
        """Ids of the candidates for a batch, none of them in it; None where the memory is taken."""
        if not self.candidates:
            return None
        n = len(self.labels)
        drawn = torch.randperm(n, generator=generator)[: max(1, round(self.candidates * n))].to(rows.device)
        return drawn[~torch.isin(drawn, rows)]

    def _sims(
        self, z: Tensor, excluded: Tensor, rows: Tensor, among: tuple[Tensor, Tensor] | None
    ) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
        """−‖z − kᵢ‖² and labels of those that vote for each row."""
        if among is None:
            ids = self.search(z.detach(), excluded)
            return -(z[:, None] - self.memory[ids]).square().sum(2), self.labels[ids]
        ids, keys = torch.cat([rows, among[0]]), torch.cat([z, among[1]])
        sims = 2 * z @ keys.T - 2  # of unit vectors
        # Finite, for the temperature's gradient: 0 · ∞ is none.
        return sims.masked_fill(ids == rows[:, None], _NOBODY), self.labels[ids].expand(len(z), -1)

    def forward(
        self,
        z: Float[Tensor, "B D"],
        rows: Int[Tensor, " B"],
        partners: Int[Tensor, " B"] | None = None,
        share: float = 1.0,
        among: tuple[Int[Tensor, " M"], Float[Tensor, "M D"]] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch.

        Args:
            z: unit embeddings of the rows or, with partners, of λ·x[rows] + (1 − λ)·x[partners].
            rows: ids of the rows.
            partners: ids of MixUp's other rows. The neighbours are those of the mixture, neither row among them, and
                the NLL is λ·NLL(p, y) + (1 − λ)·NLL(p, y′).
            share: λ.
            among: ids and unit embeddings of the candidates; None for the memory's k nearest.

        Raises:
            ValueError: the calibration term has a weight and rows are mixed; a mixture has no label to be right about.
        """
        if partners is not None and self.weights["calibration"]:
            raise ValueError("the calibration term needs rows of one label; MixUp gives them two")
        targets = [(rows, 1.0)] if partners is None else [(rows, share), (partners, 1 - share)]
        excluded = torch.stack([row_ids for row_ids, _ in targets], dim=1)
        sims, labels = self._sims(z, excluded, rows, among)  # (B, K)
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
            error = soft_ece(probs, self.labels[rows], self.bins, self.sharpness)
            total = total + self.weights["calibration"] * error
        return total

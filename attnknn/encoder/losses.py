"""Training loss of the encoder: a weighted sum of cross-entropy and of losses on pairs and proxies."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pytorch_metric_learning.losses import ContrastiveLoss, ProxyAnchorLoss, SupConLoss
from pytorch_metric_learning.miners import BatchEasyHardMiner
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor, nn


class _SquaredContrastive(ContrastiveLoss):
    """The library's terms are d and max(0, m − d); those of Hadsell et al. (2006) are their squares."""

    def get_per_pair_loss(self, pair_dists: Tensor, pos_or_neg: str) -> Tensor:
        return super().get_per_pair_loss(pair_dists, pos_or_neg).square()


class EncoderLoss(nn.Module):
    """L = w_ce · CE(logits, y) + w_sc · SupCon(z, y) + w_pa · ProxyAnchor(z, y) + w_co · Contrastive(z, y).

    SupCon (Khosla et al. 2020, L_out) takes the other rows of a class in the batch as positives; a batch without a
    positive pair, or of one class alone, gives 0. Proxy-Anchor (Kim et al. 2020) averages its positive term over the
    proxies that have positives in the batch, and its negative term over all proxies. Contrastive (Hadsell et al.
    2006) is the mean of d² over pairs of one class plus the mean of max(0, m − d)² over pairs of two, d = ‖zᵢ − zⱼ‖; a
    mean over no pairs is 0. With hardest negatives the second mean is over each row's nearest row of another class in
    the batch. Terms of weight 0 are not computed.

    Args:
        n_classes, embed_dim: C and D.
        cross_entropy, supcon, proxy_anchor, contrastive: the weights.
        label_smoothing: label smoothing of the cross-entropy.
        supcon_temperature: τ of SupCon.
        proxy_margin, proxy_alpha: δ and α of Proxy-Anchor.
        contrastive_margin: m.
        contrastive_negatives: all or hardest.
    """

    def __init__(
        self,
        n_classes: int,
        embed_dim: int,
        cross_entropy: float = 1.0,
        supcon: float = 0.0,
        proxy_anchor: float = 0.0,
        contrastive: float = 0.0,
        label_smoothing: float = 0.0,
        supcon_temperature: float = 0.1,
        proxy_margin: float = 0.1,
        proxy_alpha: float = 32.0,
        contrastive_margin: float = 0.5,
        contrastive_negatives: str = "all",
    ) -> None:
        super().__init__()
        self.config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.supcon = SupConLoss(temperature=supcon_temperature) if supcon else None
        proxies: Any = (n_classes, embed_dim, proxy_margin, proxy_alpha)  # alpha is annotated as int
        self.proxy_anchor = ProxyAnchorLoss(*proxies) if proxy_anchor else None
        pairs: Any = {"neg_margin": contrastive_margin, "reducer": MeanReducer()}
        hardest = contrastive_negatives == "hardest"
        self.miner = BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard") if hardest else None
        self.contrastive = _SquaredContrastive(**pairs) if contrastive else None

    def forward(
        self, z: Float[Tensor, "B D"], logits: Float[Tensor, "B C"] | None, y: Int[Tensor, " B"]
    ) -> Float[Tensor, ""]:
        """Loss of a batch: unit embeddings z, logits of the linear head or None, labels y."""
        z = z.float()
        total = torch.zeros((), device=z.device)
        if self.config["cross_entropy"]:
            if logits is None:
                raise ValueError("cross-entropy has a weight, but the encoder has no linear head")
            ce = F.cross_entropy(logits.float(), y, label_smoothing=self.config["label_smoothing"])
            total = total + self.config["cross_entropy"] * ce
        for name in ("supcon", "proxy_anchor", "contrastive"):
            term = getattr(self, name)
            if term is not None:
                pairs = self.miner(z, y) if name == "contrastive" and self.miner is not None else None
                total = total + self.config[name] * term(z, y, pairs)
        return total


class ViewsLoss(nn.Module):
    """NT-Xent (Chen et al. 2020): SupCon with the image that each row is a view of as its label.

    It reads the logits, which are a projection of e used in training only.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.config = {"temperature": temperature}
        self.supcon = SupConLoss(temperature=temperature)

    def forward(self, z: Tensor, logits: Float[Tensor, "B D"], image: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        """Loss of a batch: the projected views, of any length, and the numbers of their images."""
        return self.supcon(logits.float(), image)

"""A small transformer and a linear layer on frozen representations: how separable classes are, beside kNN's view."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.core.errors import require
from attnknn.experiments.fields.representations import Tokens
from attnknn.nn.optim import AdamW

_LEAST = np.finfo(np.float32).tiny  # no class is impossible: an infinite NLL could not be averaged


class SmallTransformer(nn.Module):
    """Tokens (B, L, I) → logits (B, C): hₗ = (W + Wₗ)xₗ + b + bₗ, pre-norm blocks, mean, a linear layer.

    Weights Wₗ and bias bₗ are of the token's place (Gorishniy et al. 2021, Revisiting deep learning models for tabular
    data); without Wₗ, few images of which points are known teach hardly what the same value means at another place.
    """

    def __init__(self, inputs: int, places: int, n_classes: int, dim: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.project = nn.Linear(inputs, dim)
        self.weights = nn.Parameter(0.02 * torch.randn(places, inputs * dim))
        self.biases = nn.Parameter(0.02 * torch.randn(places, dim))
        block = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.classify = nn.Linear(dim, n_classes)

    def forward(self, values: Float[Tensor, "B L I"], places: Int[Tensor, "... L"]) -> Float[Tensor, "B C"]:
        # An embedding, since the gradient of an index is summed in no fixed order.
        weights = F.embedding(places, self.weights).unflatten(-1, (values.shape[2], -1))
        own = torch.einsum("bli,lid->bld" if places.ndim == 1 else "bli,blid->bld", values, weights)
        return self.classify(self.blocks(self.project(values) + own + F.embedding(places, self.biases)).mean(1))


def transformer_probe(
    tokens: Tokens,
    y: Int[np.ndarray, " N"],
    part: Int[np.ndarray, " N"],
    n_classes: int,
    *,
    dim: int,
    heads: int,
    layers: int,
    dropout: float,
    epochs: int,
    patience: int,
    batch_size: int,
    lr: float,
    seed: int,
    device: str = "cpu",
) -> tuple[Float[np.ndarray, "T C"], int]:
    """Train on bank and fit rows by Adam; probabilities of test rows at the epoch of lowest NLL on val, and which.

    It ends after `patience` epochs without a lower one: what learns slowly, as patches of pixels do, gets the time.
    Tokens are standardised, channel by channel, as bank rows are.
    """
    from sklearn.metrics import log_loss
    from sklearn.preprocessing import StandardScaler

    torch.manual_seed(seed)
    known = torch.from_numpy(np.flatnonzero((part == BANK) | (part == FIT)))
    scaler = StandardScaler()
    values, places = tokens
    for at in torch.from_numpy(np.flatnonzero(part == BANK)).split(1000):  # a large bank's tokens are many gigabytes
        scaler.partial_fit(values[at].flatten(0, 1).double().numpy())
    mean, std = (torch.tensor(of, dtype=torch.float32) for of in (scaler.mean_, np.asarray(scaler.var_) ** 0.5))
    std = std.clamp_min(1e-6)
    rows = {p: torch.from_numpy(np.flatnonzero(part == p)) for p in (VAL, TEST)}
    labels = torch.from_numpy(np.array(y))
    net = SmallTransformer(values.shape[2], int(places.max()) + 1, n_classes, dim, heads, layers, dropout).to(device)
    mover = AdamW([{"params": net.parameters()}], lr)

    def logits(at: Tensor) -> Tensor:
        where = places if places.ndim == 1 else places[at]
        return net(((values[at].float() - mean) / std).to(device), where.to(device))

    @torch.inference_mode()
    def probs(at: Tensor) -> np.ndarray:
        net.eval()
        return torch.cat([logits(some).softmax(1).cpu() for some in at.split(500)]).numpy().clip(_LEAST)

    best: tuple[float, int, np.ndarray] | None = None
    for epoch in range(epochs):
        net.train()
        order = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(seed * 100_003 + epoch))]
        for at in order.split(batch_size):
            loss = F.cross_entropy(logits(at), labels[at].to(device))
            mover.zero_grad(set_to_none=True)
            loss.backward()
            mover.step()
        found = log_loss(y[rows[VAL].numpy()], probs(rows[VAL]), labels=np.arange(n_classes))
        if best is None or found < best[0]:
            best = found, epoch + 1, probs(rows[TEST])
        elif epoch + 1 >= best[1] + patience:
            break
    require(best is not None, f"epochs: {epochs}; give 1 or more")
    return best[2], best[1]  # type: ignore[index]


def linear_probe(
    kinds: Sequence[Float[np.ndarray, "N D"]], y: np.ndarray, part: np.ndarray, strengths: Sequence[float]
) -> tuple[Float[np.ndarray, "T C"], float]:
    """Logistic regression on bank and fit rows, standardised; probabilities of test rows, and C.

    Of several kinds of vectors and of the strengths, the pair of lowest NLL on val.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known, val, test = (np.isin(part, of) for of in ((BANK, FIT), (VAL,), (TEST,)))
    found = []
    for z, strength in product(kinds, strengths):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
        with warnings.catch_warnings():  # a weak pull on many dimensions may not settle: val judges it as it stands
            warnings.simplefilter("ignore", ConvergenceWarning)
            on_val = model.fit(z[known], y[known]).predict_proba(z[val])
        found.append((log_loss(y[val], on_val, labels=model.classes_), strength, model, z))
    _, strength, model, z = min(found, key=lambda one: one[0])
    return model.predict_proba(z[test]).astype(np.float32).clip(_LEAST), strength

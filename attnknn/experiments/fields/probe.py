"""Linear and transformer probes of frozen representations."""

import warnings
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.experiments.fields.representations import Tokens
from attnknn.nn.optim import AdamW

_MIN_PROB = np.finfo(np.float32).tiny  # an infinite NLL could not be averaged


class SmallTransformer(nn.Module):
    """Tokens (B, L, I) → logits (B, C): hₗ = (W + Wₗ)xₗ + b + bₗ, pre-norm blocks, mean pooling, a linear layer.

    Wₗ and bₗ belong to the token's position (Gorishniy et al. 2021, Revisiting deep learning models for tabular data).
    Without Wₗ, few images with sparse contexts do not teach what the same value means at another position.
    """

    def __init__(self, inputs: int, positions: int, n_classes: int, dim: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.project = nn.Linear(inputs, dim)
        self.weights = nn.Parameter(0.02 * torch.randn(positions, inputs * dim))
        self.biases = nn.Parameter(0.02 * torch.randn(positions, dim))
        block = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.classify = nn.Linear(dim, n_classes)

    def forward(self, values: Float[Tensor, "B L I"], positions: Int[Tensor, "... L"]) -> Float[Tensor, "B C"]:
        # An embedding, since the gradient of indexing is summed in no fixed order.
        weights = F.embedding(positions, self.weights).unflatten(-1, (values.shape[2], -1))
        own = torch.einsum("bli,lid->bld" if positions.ndim == 1 else "bli,blid->bld", values, weights)
        return self.classify(self.blocks(self.project(values) + own + F.embedding(positions, self.biases)).mean(1))


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
    """Train a transformer on bank and fit rows, with early stopping by the NLL on val rows.

    Tokens are standardised channel by channel on bank rows.

    Returns:
        Probabilities of test rows at the best epoch, and that epoch.
    """
    from sklearn.metrics import log_loss
    from sklearn.preprocessing import StandardScaler

    torch.manual_seed(seed)
    train_rows = torch.from_numpy(np.flatnonzero((part == BANK) | (part == FIT)))
    val_rows, test_rows = (torch.from_numpy(np.flatnonzero(part == name)) for name in (VAL, TEST))
    scaler = StandardScaler()
    values, positions = tokens
    for rows in torch.from_numpy(np.flatnonzero(part == BANK)).split(1000):  # all at once would take gigabytes
        scaler.partial_fit(values[rows].flatten(0, 1).double().numpy())
    mean = torch.tensor(scaler.mean_, dtype=torch.float32)
    std = torch.tensor(np.asarray(scaler.var_) ** 0.5, dtype=torch.float32).clamp_min(1e-6)
    labels = torch.from_numpy(np.array(y))
    net = SmallTransformer(values.shape[2], int(positions.max()) + 1, n_classes, dim, heads, layers, dropout).to(device)
    optimiser = AdamW([{"params": net.parameters()}], lr)

    def logits(rows: Tensor) -> Tensor:
        idx = positions if positions.ndim == 1 else positions[rows]
        return net(((values[rows].float() - mean) / std).to(device), idx.to(device))

    @torch.inference_mode()
    def predict(rows: Tensor) -> np.ndarray:
        net.eval()
        return torch.cat([logits(batch).softmax(1).cpu() for batch in rows.split(500)]).numpy().clip(_MIN_PROB)

    best: tuple[float, int, np.ndarray] | None = None
    for epoch in range(epochs):
        net.train()
        generator = torch.Generator().manual_seed(seed * 100_003 + epoch)
        for batch in train_rows[torch.randperm(len(train_rows), generator=generator)].split(batch_size):
            loss = F.cross_entropy(logits(batch), labels[batch].to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        nll = log_loss(y[val_rows.numpy()], predict(val_rows), labels=np.arange(n_classes))
        if best is None or nll < best[0]:
            best = nll, epoch + 1, predict(test_rows)
        elif epoch + 1 >= best[1] + patience:
            break
    assert best is not None, "at least one epoch"
    return best[2], best[1]


def linear_probe(
    kinds: Sequence[Float[np.ndarray, "N D"]], y: np.ndarray, part: np.ndarray, strengths: Sequence[float]
) -> tuple[Float[np.ndarray, "T C"], float]:
    """Logistic regression on the standardised bank and fit rows; probabilities of test rows, and C.

    Kind of vectors and strength C are chosen by the NLL on val rows.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, val, test = (np.isin(part, names) for names in ((BANK, FIT), (VAL,), (TEST,)))
    candidates = []
    for z, strength in product(kinds, strengths):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
        with warnings.catch_warnings():  # weak regularisation may not converge; the NLL on val judges the result
            warnings.simplefilter("ignore", ConvergenceWarning)
            val_probs = model.fit(z[train], y[train]).predict_proba(z[val])
        candidates.append((log_loss(y[val], val_probs, labels=model.classes_), strength, model, z))
    _, strength, model, z = min(candidates, key=lambda candidate: candidate[0])
    return model.predict_proba(z[test]).astype(np.float32).clip(_MIN_PROB), strength

"""The head's training loop, read top to bottom: on fit rows, which the encoder never saw, stopped by validation NLL."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from attnknn.artifacts import BANK, FIT, VAL, Embeddings, Neighbours
from attnknn.classify import gather
from attnknn.errors import require
from attnknn.heads import Attention
from attnknn.tuning import spread, tune_distance
from attnknn.votes import class_shares, vote

Row = dict[str, float]


def fit_head(
    embeddings: Embeddings,
    neighbours: Neighbours,
    *,
    k_train: int,
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    patience: int,
    temperatures: Sequence[float],
    priors: Sequence[float],
    seed: int,
    device: str = "cpu",
    progress: Callable[[Row], None] | None = None,
) -> tuple[Attention, list[Row]]:
    """Fit the attention head on fit rows, which the encoder never trained on; stop early by the NLL on val rows.

    The head starts as the distance weighting of k_train neighbours whose τ and ε are best on val, and never ends with
    a higher validation NLL than that. Loss: mean −log p(y) of the votes. Weight decay pulls W to the identity.

    Args:
        temperatures, priors: grids for the start, see `tuning.tune_distance`.
        patience: epochs without a lower validation NLL before it stops.

    Returns:
        The head in evaluation mode, and a row an epoch: epoch (0 is the start), fit_nll, val_nll.
    """
    stored = neighbours.ids.shape[1]
    require(
        k_train <= stored,
        f"k_train: {k_train} is above the {stored} neighbours stored for each row; lower k_train",
    )
    y = np.asarray(embeddings.y)
    shares = class_shares(y[embeddings.rows(BANK)], len(embeddings.classes))
    fit, val = embeddings.rows(FIT), embeddings.rows(VAL)
    start = _start(neighbours, y, val, k_train, shares, temperatures, priors)
    head = Attention(
        embeddings.z.shape[1],
        start["temperature"],
        start["prior"],
        neighbours.metric,
        spread(neighbours.of(val, k_train)[1]),
    ).to(device)
    shares = shares.to(device)
    decayed = [head.delta]
    others = [p for name, p in head.named_parameters() if name != "delta"]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}], lr=lr
    )

    def nll(rows: np.ndarray) -> Tensor:
        """Mean NLL of the votes for some rows."""
        query, keys, sims, labels = (t.to(device) for t in gather(embeddings, neighbours, rows, k_train))
        weights, null = head(query, keys, sims, labels)
        probs = vote(weights, null, labels, shares)
        return -probs.gather(1, torch.from_numpy(y[rows]).to(device)[:, None]).log().mean()

    @torch.inference_mode()
    def mean_nll(rows: np.ndarray) -> float:
        parts = [rows[s : s + batch_size] for s in range(0, len(rows), batch_size)]
        return sum(float(nll(part)) * len(part) for part in parts) / len(rows)

    rng = np.random.default_rng(seed)
    history = [{"epoch": 0, "fit_nll": mean_nll(fit), "val_nll": mean_nll(val)}]
    best, best_state = history[0], copy.deepcopy(head.state_dict())
    for epoch in range(1, epochs + 1):
        order = rng.permutation(fit)
        total = 0.0
        for s in range(0, len(order), batch_size):
            rows = order[s : s + batch_size]
            value = nll(rows)
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
            total += float(value.detach()) * len(rows)
        history.append({"epoch": epoch, "fit_nll": total / len(fit), "val_nll": mean_nll(val)})
        if progress is not None:
            progress(history[-1])
        if history[-1]["val_nll"] < best["val_nll"]:
            best, best_state = history[-1], copy.deepcopy(head.state_dict())
        elif epoch - best["epoch"] >= patience:
            break
    head.load_state_dict(best_state)
    return head.eval(), history


def _start(
    neighbours: Neighbours,
    y: np.ndarray,
    val: np.ndarray,
    k: int,
    shares: Tensor,
    temperatures: Sequence[float],
    priors: Sequence[float],
) -> dict[str, float]:
    """τ and ε of the best distance weighting of exactly k neighbours on val."""
    ids, sims = neighbours.of(val, k)
    labels = np.where(ids >= 0, y[ids], -1)
    return tune_distance(sims, labels, y[val], shares, [k], temperatures, priors)

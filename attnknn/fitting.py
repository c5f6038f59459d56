"""The head's training loop, read top to bottom: on queries that the encoder never saw, stopped by validation NLL."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnknn.artifacts import FIT, VAL
from attnknn.classify import classify
from attnknn.errors import require
from attnknn.learned import LearnedHead, make_head
from attnknn.neighbourhood import Retrieved
from attnknn.objectives import entropy, hard_weights, hardness, nll, soft_ece
from attnknn.tuning import spread, tune_distance

Row = dict[str, float]


def fit_head(
    retrieved: Retrieved,
    fits: Sequence[Retrieved],
    *,
    k_train: int,
    kind: str,
    parts: Mapping[str, Any],
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    patience: int,
    restarts: int,
    label_smoothing: float,
    hard_weight: float,
    entropy_weight: float,
    calibration_weight: float,
    temperatures: Sequence[float],
    priors: Sequence[float],
    seed: int,
    device: str = "cpu",
    progress: Callable[[Row], None] | None = None,
) -> tuple[LearnedHead, list[Row]]:
    """Fit the attention head on fit rows, which no encoder they are embedded by trained on; stop by the NLL on val rows.

    The head starts as the distance weighting of k_train neighbours whose τ and ε are best on val, and never ends with
    a higher validation NLL than that. Of several restarts the one of lowest validation NLL is kept.

        L = Σ w·NLL(votes, y)/Σ w − entropy_weight·H(weights) + calibration_weight·soft ECE

    Args:
        retrieved: whose val rows stop the fitting.
        fits: whose fit rows are learned from: `retrieved` itself, or the folds of a cross-fit, each embedded by an
            encoder that did not see its fit rows.
        kind, parts: what the head is made of, see `learned.make_head`.
        hard_weight: w = 1 + (hard_weight − 1)·(share of the neighbours of another class); 1 weighs all queries alike.
        weight_decay: of the projections, the prototypes' moves and the evidence network's matrices.
        patience: epochs without a lower validation NLL before it stops.
        temperatures, priors: grids for the start, see `tuning.tune_distance`.

    Returns:
        The head in evaluation mode, and a row an epoch: epoch (0 is the start), loss on fit rows, val_nll, restart.
    """
    stored = retrieved.neighbours.ids.shape[1]
    require(k_train <= stored, f"k_train: {k_train} is above the {stored} neighbours stored for each row; lower k_train")
    y, val = np.asarray(retrieved.embeddings.y), retrieved.embeddings.rows(VAL)
    own = [one.embeddings.rows(FIT) for one in fits]
    queries = np.concatenate([np.stack([np.full_like(rows, f), rows], 1) for f, rows in enumerate(own)])  # (M, 2)
    require(len(queries) > 0, "fit: no rows to fit the head on")
    around = retrieved.around(val, k_train)
    start = tune_distance(
        around.sims.numpy(), around.labels.numpy(), y[val], retrieved.shares, [k_train], temperatures, priors
    )

    def objective(head: LearnedHead, batch: np.ndarray) -> Tensor:
        """The loss of some queries (B, 2): which of fits, row; those of one embedding space at a time."""
        answers = []
        for f in np.unique(batch[:, 0]):
            rows = batch[batch[:, 0] == f, 1]
            near = fits[f].around(rows, k_train, head.needs_keys).to(device)
            target = torch.from_numpy(fits[f].embeddings.y[rows]).to(device)
            answers.append((*head(near), target, hardness(near.labels, target)))
        probs, weights, target, hard = (torch.cat(part) for part in zip(*answers, strict=True))
        loss = nll(probs, target, label_smoothing, hard_weights(hard, hard_weight) if hard_weight != 1 else None)
        if entropy_weight:
            loss = loss - entropy_weight * entropy(weights)
        if calibration_weight:
            loss = loss + calibration_weight * soft_ece(probs, target)
        return loss

    def validate(head: LearnedHead) -> float:
        probs = classify(head.eval(), retrieved, val, k_train, device)
        return -float(np.log(probs[np.arange(len(val)), y[val]].clip(1e-37)).mean())

    best, best_state, history = math.inf, None, []
    for restart in range(restarts):
        torch.manual_seed(seed * 1009 + restart)  # the head's first weights and its dropout
        rng = np.random.default_rng([seed, restart])
        head = make_head(
            kind,
            parts,
            dim=retrieved.embeddings.z.shape[1],
            n_classes=len(retrieved.embeddings.classes),
            n_sizes=len(retrieved.evidence.sizes),
            temperature=start["temperature"],
            prior=start["prior"],
            metric=retrieved.neighbours.metric,
            unit=spread(around.sims.numpy()),
        ).to(device)
        learned = [p for p in head.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in learned if p.ndim > 1], "weight_decay": weight_decay},
            {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
        ]
        optimiser = torch.optim.AdamW(groups, lr=lr)
        history.append({"restart": restart, "epoch": 0, "loss": math.nan, "val_nll": validate(head)})
        since, lowest = 0, history[-1]["val_nll"]
        if lowest < best:
            best, best_state = lowest, copy.deepcopy(head.state_dict())
        for epoch in range(1, epochs + 1):
            head.train()
            order = rng.permutation(queries)
            total = 0.0
            for s in range(0, len(order), batch_size):
                batch = order[s : s + batch_size]
                loss = objective(head, batch)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                total += float(loss.detach()) * len(batch)
            history.append({"restart": restart, "epoch": epoch, "loss": total / len(order), "val_nll": validate(head)})
            if progress is not None:
                progress(history[-1])
            since += 1
            if history[-1]["val_nll"] < lowest:
                since, lowest = 0, history[-1]["val_nll"]
                if lowest < best:
                    best, best_state = lowest, copy.deepcopy(head.state_dict())
            if since >= patience:
                break
    assert best_state is not None, "the first epoch of the first restart is the best so far"
    head.load_state_dict(best_state)
    return head.eval(), history

"""Training loop of the learned heads: on queries that the encoder never saw, stopped early by validation NLL."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from attnknn.core.artifacts import FIT, VAL
from attnknn.core.device import torch_threads
from attnknn.core.errors import require
from attnknn.heads.attention import Attention
from attnknn.heads.baselines import similarity_scale, tune_distance
from attnknn.heads.classify import classify_part
from attnknn.heads.prototypes import scaled_logits
from attnknn.heads.registry import LearnedHead, learns_space, make_head
from attnknn.neighbours.space import NEEDS, EmbeddingSpace, classes_of, part_neighbours, part_rows
from attnknn.nn.objectives import entropy, hard_weights, hardness, nll, soft_ece
from attnknn.nn.optim import AdamW, MovingAverage

Row = dict[str, float]
VAL_BATCH = 1024
TOLERANCE = 1e-4  # nats
# Matrices of more inputs learn slower in proportion, so that a step changes W x equally (μP, Yang et al. 2021).
FAN_IN = 10
LINEAR_ALONE = 14.0  # logit of ε that leaves neighbours no weight
VOTES_AT_START = 0.1  # share of unanimous neighbours in the answer of a head with `linear`, when training starts
RIDGES = (1e-4, 1e-3, 0.01, 0.1, 1.0, 1000.0)  # of the linear head's scaling
AVERAGED_EPOCHS = 2  # of the exponential moving average of the weights


def fit_head(
    spaces: Sequence[EmbeddingSpace],
    *,
    k_train: int,
    kind: str,
    parts: Mapping[str, Any],
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    patience: int,
    label_smoothing: float,
    hard_weight: float,
    entropy_weight: float,
    calibration_weight: float,
    temperatures: Sequence[float],
    priors: Sequence[float],
    seed: int,
    device: str = "cpu",
    progress: Callable[[Row], None] | None = None,
    transition: np.ndarray | None = None,
) -> tuple[LearnedHead, list[Row]]:
    """Fit a head on fit rows, which its encoder was not trained on; stop early by the NLL on val rows.

    The head is initialised to the distance weighting of k_train neighbours whose τ and ε are best on val; with `linear`
    to the linear head alone, its logits scaled and shifted by `scaled_logits`, before training lets neighbours correct
    it. Parameters per embedding dimension are added, at 0, to the head fitted without them. So the validation NLL is
    never above that of this start, nor of the head without those parameters.

        L = Σ w·NLL(votes, y)/Σ w − entropy_weight·H(weights) + calibration_weight·soft ECE

    With a transition matrix T the labels of fit and val rows may be wrong, and NLL is that of votes·T, the
    probabilities of the given labels (see `label_noise`).

    AdamW with one epoch of warm-up; moving averages of the weights are validated and returned.

    Args:
        spaces: the main embedding space, then those of cross-fitting folds, if any; their fit rows train the head and
            their val rows stop it.
        k_train: neighbours of each query; all that are stored, where those are fewer.
        kind, parts: see `registry.make_head`.
        weight_decay: of matrices only: projections, prototype moves and the feature network.
        patience: epochs in which the validation NLL falls by less than 1e-4 before training stops.
        label_smoothing: of the NLL.
        hard_weight: w = 1 + (hard_weight − 1)·(share of the neighbours of another class); 1 for equal weights.
        temperatures, priors: grids of the initialisation, see `baselines.tune_distance`.
        progress: called with each row of the history.
        transition: T (C, C); None if labels are right.

    Returns:
        The head in evaluation mode, and the history, one row per epoch: epoch (0 is the initialisation), fit_loss,
        val_nll, phase (1 with the parameters per embedding dimension added, else 0).

    Raises:
        InputError: the parts do not transfer between spaces, there are no fit rows, `linear` lacks a linear head, or
            the loss diverges.
    """
    _check(spaces, kind, parts)
    k_train = min(k_train, *(space.neighbours.ids.shape[1] for space in spaces))
    parts = dict(parts) if kind == "attention" else {**parts, "linear": False, "hierarchical": False}
    linear = parts.get("linear", False)
    weights = label_smoothing, hard_weight, entropy_weight, calibration_weight
    rows = _Rows(spaces, k_train, batch_size, device, transition, bool(parts.get("hierarchical")))
    sims, labels = part_neighbours(spaces, VAL, k_train)
    grid = [k_train], temperatures, priors
    initial = tune_distance(sims, labels, rows.y_val, spaces[0].shares, *grid, transition=transition)
    phases = [parts]
    if kind == "attention" and learns_space(kind, parts):
        phases.insert(0, {**parts, "similarity": "bank", "heads": 1, "refine_keys": False, "move_prototypes": False})
    best, best_state, history = math.inf, {}, []
    rng = np.random.default_rng([seed, 0])
    for phase in phases:
        # Without keys every operation is small.
        with torch_threads(None if device != "cpu" or learns_space(kind, phase) else 1):
            torch.manual_seed(seed * 1009)  # initial weights and dropout
            head = make_head(
                kind,
                phase,
                dim=spaces[0].embeddings.z.shape[1],
                n_classes=len(spaces[0].embeddings.classes),
                n_sizes=len(spaces[0].statistics.sizes),
                temperature=initial["temperature"],
                k=k_train,
                prior=initial["prior"],
                metric=spaces[0].neighbours.metric,
                sim_scale=similarity_scale(sims),
            ).to(device)
            if linear and not history:
                start_from_linear(cast(Attention, head), spaces, transition)
            state = head.state_dict()
            best_state = copy.deepcopy(state) | {name: t.expand_as(state[name]) for name, t in best_state.items()}
            head.load_state_dict(best_state)
            if isinstance(head, Attention) and "keys" not in head.needs:
                rows.precompute(head)
            optimiser = _optimiser(head, lr, weight_decay)
            rates = [group["lr"] for group in optimiser.param_groups]
            decay = 1 - 1 / (AVERAGED_EPOCHS * rows.n_batches)
            moving = MovingAverage(head, decay)
            stalled, lowest, steps = 0, best, 0
            for epoch in range(len(history), len(history) + epochs + (not history)):
                training = epoch > 0  # epoch 0 measures the initialisation
                head.train(training)
                total = 0.0
                for i, idx in rows.shuffled_batches(rng):
                    with torch.set_grad_enabled(training):
                        loss = rows.loss(head, i, idx, *weights)
                    if training:
                        steps += 1
                        for group, rate in zip(optimiser.param_groups, rates, strict=True):
                            group["lr"] = rate * min(1, steps / rows.n_batches)  # warm-up
                        optimiser.zero_grad()
                        loss.backward()
                        optimiser.step()
                        moving.update()
                    total += float(loss.detach()) * len(idx)
                diverged = (
                    f"train_attention: the loss is {total} in epoch {epoch}; lower lr ({lr}) or its terms' weights"
                )
                require(math.isfinite(total), diverged)
                row = {"epoch": epoch, "fit_loss": total / rows.n_fit, "phase": phases.index(phase)}
                row["val_nll"] = rows.val_nll(cast(LearnedHead, moving.module))
                history.append(row)
                if progress is not None:
                    progress(row)
                stalled += 1
                if row["val_nll"] < lowest - TOLERANCE:
                    stalled, lowest = 0, row["val_nll"]
                if row["val_nll"] < best:
                    best, best_state = row["val_nll"], copy.deepcopy(moving.module.state_dict())
                if stalled >= patience:
                    break
                if epoch == 0 and linear:
                    n_classes = len(spaces[0].embeddings.classes)
                    with torch.no_grad():
                        cast(Attention, head).null_bias.fill_(math.log(n_classes * (1 / VOTES_AT_START - 1)))
                    moving = MovingAverage(head, decay)
            head.load_state_dict(best_state)
    return head.eval(), history


def _check(spaces: Sequence[EmbeddingSpace], kind: str, parts: Mapping[str, Any]) -> None:
    """Refuse what `fit_head` cannot fit."""
    require(
        len(spaces) == 1 or not learns_space(kind, parts),
        "train_attention.parts: parameters per embedding dimension mean nothing in another fold's space; with folds "
        "set kind: attention, similarity: bank and move_prototypes: false, or set train_embedder.folds: 0",
    )
    linear = parts.get("linear", False)
    require(not linear or has_logits(spaces), "train_attention.parts.linear: the encoder has no linear head; set false")
    require(any(len(space.embeddings.rows(FIT)) for space in spaces), "fit: no rows to fit the head on")


def _optimiser(head: LearnedHead, lr: float, weight_decay: float) -> AdamW:
    """AdamW with lower rates for wide matrices, and weight decay for matrices only."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for p in head.parameters():
        rate = lr * min(1, FAN_IN / p.shape[-1]) if p.ndim > 1 else lr
        groups.setdefault((rate, weight_decay * (p.ndim > 1)), []).extend([p] * p.requires_grad)
    return AdamW([{"params": ps, "lr": rate, "weight_decay": decay} for (rate, decay), ps in groups.items()])


class _Rows:
    """Fit and val rows of the spaces with their neighbours, gathered once; keys (B, K, D) are gathered by batch."""

    def __init__(
        self,
        spaces: Sequence[EmbeddingSpace],
        k: int,
        batch_size: int,
        device: str,
        transition: np.ndarray | None,
        regions: bool,
    ) -> None:
        self.transition = None if transition is None else torch.from_numpy(transition).float()
        self.spaces, self.k, self.batch_size, self.device = spaces, k, batch_size, device
        self.fit_rows = [space.embeddings.rows(FIT) for space in spaces]
        self.n_fit = sum(map(len, self.fit_rows))
        self.n_batches = sum(-(-len(rows) // batch_size) for rows in self.fit_rows)
        self.y_val = classes_of(spaces, VAL)
        without = {"keys"} | ({"logits"} if not has_logits(spaces) else set())
        without |= set() if regions else {"region", "region_sims"}
        small = [name for name in NEEDS if name not in without]
        self.on_fit = [
            space.around(rows, k, small).to(device) for space, rows in zip(spaces, self.fit_rows, strict=True)
        ]
        self.on_val = [
            space.around(rows[s : s + VAL_BATCH], k, small).to(device)
            for space, rows in part_rows(spaces, VAL)
            for s in range(0, len(rows), VAL_BATCH)
        ]

    def precompute(self, head: Attention) -> None:
        """Compute once what does not depend on the head's parameters."""
        self.on_fit, self.on_val = ([head.precompute(batch) for batch in part] for part in (self.on_fit, self.on_val))

    def shuffled_batches(self, rng: np.random.Generator) -> list[tuple[int, np.ndarray]]:
        """Batches of one space's fit rows each, in random order: the space's number, positions in its fit rows."""
        batches = []
        for i, rows in enumerate(self.fit_rows):
            order = rng.permutation(len(rows))
            batches += [(i, order[s : s + self.batch_size]) for s in range(0, len(order), self.batch_size)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def loss(
        self,
        head: LearnedHead,
        i: int,
        idx: np.ndarray,
        label_smoothing: float,
        hard_weight: float,
        entropy_weight: float,
        calibration_weight: float,
    ) -> Tensor:
        """The objective of `fit_head` on one of `shuffled_batches`."""
        rows = self.fit_rows[i][idx]
        if "keys" in head.needs:
            batch = self.spaces[i].around(rows, self.k, head.needs).to(self.device)
        else:
            batch = self.on_fit[i].take(torch.from_numpy(idx).to(self.device))
        target = torch.from_numpy(self.spaces[i].embeddings.y[rows]).to(self.device)
        probs, weights = head(batch)
        if self.transition is not None:
            probs = probs @ self.transition.to(probs)
        weight = hard_weights(hardness(batch.labels, target), hard_weight) if hard_weight != 1 else None
        loss = nll(probs, target, label_smoothing, weight)
        if entropy_weight:
            loss = loss - entropy_weight * entropy(weights)
        if calibration_weight:
            loss = loss + calibration_weight * soft_ece(probs, target)
        return loss

    @torch.inference_mode()
    def val_nll(self, head: LearnedHead) -> float:
        """Mean NLL on val rows."""
        head.eval()
        if "keys" in head.needs:
            outputs = [classify_part(head, self.spaces, VAL, self.k, self.device)]
        else:
            outputs = (head(batch)[0].cpu().numpy() for batch in self.on_val)
        p_true = []
        for probs in outputs:
            probs = probs if self.transition is None else probs @ self.transition.numpy()
            p_true += probs[np.arange(len(probs)), self.y_val[len(p_true) :][: len(probs)]].tolist()
        return -float(np.log(np.clip(p_true, 1e-37, None)).mean())


def start_from_linear(head: Attention, spaces: Sequence[EmbeddingSpace], transition: np.ndarray | None = None) -> None:
    """Set a head with `linear` to p_c ∝ exp(g·ℓ_c + d_c), no neighbours, fitted on fit rows, its ridge on val rows."""
    logits = [
        np.concatenate([np.asarray(s.embeddings.logits)[rows] for s, rows in part_rows(spaces, part)]).astype(float)
        for part in (FIT, VAL)
    ]
    y = [classes_of(spaces, part) for part in (FIT, VAL)]
    change = scaled_logits(logits, logits, y, RIDGES, unit=1.0, transition=transition)
    assert head.linear_gain is not None, "a head with `linear`"
    assert head.linear_bias is not None, "set with the gain"
    with torch.no_grad():
        head.linear_gain.fill_(1 + change[0])
        head.linear_bias.copy_(torch.from_numpy(change[1:]))
        head.null_bias.fill_(LINEAR_ALONE)


def has_logits(spaces: Sequence[EmbeddingSpace]) -> bool:
    """Whether all encoders have a linear head."""
    return all(space.embeddings.logits is not None for space in spaces)


# Attention by neighbours alone, and with classifiers that score its null neighbours: what is added to its parts.
FORMS: dict[str, dict[str, bool]] = {
    "attention": {},
    "attention-means": {"prototypes": True},
    "attention-linear": {"linear": True},
}


def fit_forms(
    spaces: Sequence[EmbeddingSpace], kind: str, parts: Mapping[str, Any], **settings: Any
) -> dict[str, tuple[LearnedHead, list[Row]]]:
    """`fit_head` in each of `FORMS`; `tabr` has one, and `attention-linear` needs the logits of a linear head."""
    names = [name for name in FORMS if kind == "attention" or name == "attention"]
    return {
        name: fit_head(spaces, kind=kind, parts={**parts, **FORMS[name]}, **settings)
        for name in names
        if has_logits(spaces) or not FORMS[name].get("linear")
    }


def kept_start(history: Sequence[Row]) -> bool:
    """Whether no epoch of the last phase lowered the NLL on val rows by 1e-4, so that nothing was learned."""
    first = next(i for i, row in enumerate(history) if row["phase"] == history[-1]["phase"])
    start = min(row["val_nll"] for row in history[: max(first, 1)])
    return min(row["val_nll"] for row in history) > start - TOLERANCE

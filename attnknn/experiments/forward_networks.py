"""Classifiers without neighbours that see through wrong labels: logistic regression, RBF, one-hidden-layer networks.

They are fitted by forward correction, through a transition matrix T (Patrini et al. 2017; see `heads.label_noise`), or
with the generalised cross-entropy, which is robust to noise by itself (Zhang & Sabuncu 2018).
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, PartProbs
from attnknn.heads.label_noise import STRENGTHS
from attnknn.nn.linear_probe import forward_regression
from attnknn.nn.objectives import nll
from attnknn.nn.optim import AdamW

# Name → hidden units; None for `linear_probe.forward_regression`.
FORWARD_NETWORKS: dict[str, tuple[int, ...] | None] = {"linear": None, "bank-rbf": None, "bank-mlp": (128,)}
GCE_NETWORKS: dict[str, tuple[int, ...] | None] = {"gce-linear": (), "gce-rbf": (), "gce-mlp": (128,)}
_Q = 0.7  # of the generalised cross-entropy (1 − p^q)/q
_GAMMAS = (1.0, 4.0)  # of the random Fourier features that `bank-rbf` is linear in
_DECAYS = (0.1, 1.0)  # of AdamW's weight decay
_EPOCHS, _STEPS, _BATCH = 20, 600, 256  # the lowest numbers of epochs and of steps

_Inputs = tuple[torch.Tensor, np.ndarray, np.ndarray]  # x (N, D), y (N,), part (N,)


def _forward_nll(probs: torch.Tensor, y: np.ndarray, part: np.ndarray, transition: np.ndarray) -> float:
    """NLL of fit labels through T; probs (N, C) of all rows."""
    fit = np.flatnonzero(part == FIT)
    return float(nll(probs[fit] @ torch.from_numpy(transition).float(), torch.from_numpy(y[fit])))


def _regression(
    x: torch.Tensor, y: np.ndarray, part: np.ndarray, transition: np.ndarray, strength: float
) -> tuple[float, torch.Tensor]:
    """NLL of fit labels through T, and the probabilities (N, C) of classes, by `forward_regression`."""
    bank = np.flatnonzero(part == BANK)
    regression = forward_regression(x[bank].numpy(), transition[:, y[bank]].T, np.ones(len(bank)), strength)
    weight, bias = (torch.from_numpy(array).float() for array in regression)
    probs = (x @ weight.T + bias).softmax(1)
    return _forward_nll(probs, y, part, transition), probs


def _network(
    x: torch.Tensor, y: np.ndarray, part: np.ndarray, transition: np.ndarray, decay: float, name: str
) -> tuple[float, torch.Tensor]:
    """Lowest NLL of fit labels through T over about `_EPOCHS` epochs, and the probabilities (N, C) of classes then."""
    hidden = (FORWARD_NETWORKS | GCE_NETWORKS)[name] or ()
    n_classes, rows = len(transition), np.flatnonzero(part == BANK)
    x = 8 * x  # logits of unit weights have the size of useful ones
    widths = [x.shape[1], *hidden, n_classes]
    layers: list[nn.Module] = []
    for before, width in pairwise(widths):
        layers += [nn.Linear(before, width), nn.GELU()]
    net, t, target = nn.Sequential(*layers[:-1]), torch.from_numpy(transition).float(), torch.tensor(y)
    batches = -(-len(rows) // _BATCH)
    epochs = max(_EPOCHS, -(-_STEPS // batches))
    optimiser = AdamW([{"params": net.parameters()}], 0.005 if hidden else 0.05, weight_decay=decay)
    best, best_probs = np.inf, torch.empty(0)
    for epoch in range(epochs):
        shuffled = torch.from_numpy(rows)[torch.randperm(len(rows))]
        for step, idx in enumerate(shuffled.split(_BATCH), epoch * batches):
            probs = net(x[idx]).softmax(1)
            if name in GCE_NETWORKS:
                loss = (1 - probs.gather(1, target[idx, None]).clamp_min(1e-6) ** _Q).mean() / _Q
            else:
                loss = nll(probs @ t, target[idx])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            optimiser.param_groups[0]["lr"] *= 1 - 1 / (epochs * batches - step)  # linearly to 0
        if (epoch + 1) % (epochs // _EPOCHS):
            continue
        with torch.no_grad():
            probs = net(x).softmax(1)
        value = _forward_nll(probs, y, part, transition)
        if value < best:
            best, best_probs = value, probs
    return best, best_probs


def forward_networks(
    spaces: Sequence[Embeddings], transition: np.ndarray, seed: int
) -> tuple[PartProbs, list[np.ndarray]]:
    """Fit all networks on bank rows, and predict fit, val and test rows.

    Settings and the epoch have the lowest NLL of fit labels, so that val rows, which select a method, favour none;
    settings in the first space, whose networks predict test rows. Networks of folds read their own bank.

    Returns:
        Probabilities by network, and the logits (N, C) of `linear` in each space.
    """
    from sklearn.kernel_approximation import RBFSampler

    def inputs(e: Embeddings, gamma: float) -> _Inputs:
        z = np.asarray(e.z, dtype=np.float32)
        if gamma:
            z = RBFSampler(gamma=gamma, n_components=1000, random_state=seed).fit_transform(z).astype(np.float32)
        bank = z[e.part == BANK]
        return torch.from_numpy((z - bank.mean(0)) / np.sqrt(bank.var(0).sum())), np.asarray(e.y), np.asarray(e.part)

    result: PartProbs = {}
    logits: list[np.ndarray] = []
    with torch.random.fork_rng(devices=[]):  # of GPUs would start CUDA, which a forked process cannot
        torch.manual_seed(seed)
        for name, hidden in (FORWARD_NETWORKS | GCE_NETWORKS).items():
            fit_network = _regression if hidden is None else partial(_network, name=name)
            penalties = STRENGTHS if hidden is None else _DECAYS
            fits = {}
            for gamma in _GAMMAS if name.endswith("rbf") else (0.0,):
                x = inputs(spaces[0], gamma)
                fits |= {(gamma, penalty): fit_network(*x, transition, penalty) for penalty in penalties}
            gamma, penalty = min(fits, key=lambda setting: fits[setting][0])
            of_folds = [fit_network(*inputs(e, gamma), transition, penalty) for e in spaces[1:]]
            probs = [own.numpy() for _, own in (fits[gamma, penalty], *of_folds)]
            fit, val = (
                np.concatenate([own[e.part == p] for own, e in zip(probs, spaces, strict=True)]) for p in (FIT, VAL)
            )
            result[name] = fit, val, probs[0][spaces[0].part == TEST]
            if name == "linear":
                logits = [np.log(np.maximum(own, 1e-9)) for own in probs]
    return result, logits

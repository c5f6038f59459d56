"""Classifiers without neighbours that see through wrong labels: linear, RBF and one-hidden-layer networks.

They are fitted by forward correction, through a transition matrix T (Patrini et al. 2017; see `heads.label_noise`), or
with the generalised cross-entropy, which is robust to noise by itself (Zhang & Sabuncu 2018).
"""

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import torch
from torch import nn

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, PartProbs
from attnknn.nn.objectives import nll

# Name → hidden units.
FORWARD_NETWORKS = {"linear": (), "bank-rbf": (), "bank-mlp": (128,)}
GCE_NETWORKS = {"gce-linear": (), "gce-rbf": (), "gce-mlp": (128,)}
_Q = 0.7  # of the generalised cross-entropy (1 − p^q)/q
_GAMMAS = (1.0, 4.0)  # of the random Fourier features that `bank-rbf` is linear in
_DECAYS = (0.1, 1.0)  # of AdamW's weight decay
_EPOCHS, _STEPS, _BATCH = 20, 600, 256  # the lowest numbers of epochs and of steps

_Inputs = tuple[torch.Tensor, np.ndarray, np.ndarray]  # x (N, D), y (N,), part (N,)


def _forward_network(
    x: torch.Tensor, y: np.ndarray, part: np.ndarray, name: str, transition: np.ndarray, decay: float
) -> tuple[float, np.ndarray]:
    """Lowest NLL of fit labels through T over about `_EPOCHS` epochs, and the probabilities (N, C) of classes then."""
    hidden = (FORWARD_NETWORKS | GCE_NETWORKS)[name]
    n_classes, rows, fit = len(transition), np.flatnonzero(part == BANK), np.flatnonzero(part == FIT)
    widths = [x.shape[1], *hidden, n_classes]
    layers: list[nn.Module] = []
    for before, width in pairwise(widths):
        layers += [nn.Linear(before, width), nn.GELU()]
    net, t, target = nn.Sequential(*layers[:-1]), torch.from_numpy(transition).float(), torch.from_numpy(y)
    batches = -(-len(rows) // _BATCH)
    epochs = max(_EPOCHS, -(-_STEPS // batches))
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.005 if hidden else 0.05, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, epochs * batches)
    best, best_probs = np.inf, np.empty(0)
    for epoch in range(epochs):
        for idx in torch.from_numpy(rows)[torch.randperm(len(rows))].split(_BATCH):
            probs = net(x[idx]).softmax(1)
            if name in GCE_NETWORKS:
                loss = (1 - probs.gather(1, target[idx, None]).clamp_min(1e-6) ** _Q).mean() / _Q
            else:
                loss = nll(probs @ t, target[idx])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if (epoch + 1) % (epochs // _EPOCHS):
            continue
        with torch.no_grad():
            value = float(nll(net(x[fit]).softmax(1) @ t, target[fit]))
            if value < best:
                best, best_probs = value, net(x).softmax(1).numpy()
    return best, best_probs


def forward_networks(spaces: Sequence[Embeddings], transition: np.ndarray, seed: int) -> PartProbs:
    """Fit all networks on bank rows, and predict fit, val and test rows.

    Settings and the epoch have the lowest NLL of fit labels, so that val rows, which select a method, favour none;
    settings in the first space, whose networks predict test rows. Networks of folds read their own bank.
    """
    from sklearn.kernel_approximation import RBFSampler

    def inputs(e: Embeddings, gamma: float) -> _Inputs:
        z = np.asarray(e.z, dtype=np.float32)
        if gamma:
            z = RBFSampler(gamma=gamma, n_components=1000, random_state=seed).fit_transform(z).astype(np.float32)
        bank = z[e.part == BANK]
        scale = 8 / float(np.sqrt(bank.var(0).sum()))  # logits of unit weights have the size of useful ones
        return torch.from_numpy((z - bank.mean(0)) * scale), np.asarray(e.y), np.asarray(e.part)

    result: PartProbs = {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for name in FORWARD_NETWORKS | GCE_NETWORKS:
            fits = {}
            for gamma, decay in product(_GAMMAS if name.endswith("rbf") else (0.0,), _DECAYS):
                fits[gamma, decay] = _forward_network(*inputs(spaces[0], gamma), name, transition, decay)
            gamma, decay = min(fits, key=lambda setting: fits[setting][0])
            of_folds = [_forward_network(*inputs(e, gamma), name, transition, decay) for e in spaces[1:]]
            chosen = [fits[gamma, decay], *of_folds]
            fit, val = (
                np.concatenate([probs[e.part == p] for (_, probs), e in zip(chosen, spaces, strict=True)])
                for p in (FIT, VAL)
            )
            result[name] = fit, val, chosen[0][1][spaces[0].part == TEST]
    return result

"""What can be wrong with a memory: labels that are wrong, classes that are rare. Nothing of ours is imported."""

import numpy as np


def symmetric_noise(y: np.ndarray, rate: float, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    """A copy of labels y (N,) in which round(rate·N) rows, chosen at random, carry another class, each as likely."""
    noisy = np.array(y)
    hit = rng.permutation(len(y))[: round(rate * len(y))]
    noisy[hit] = (noisy[hit] + rng.integers(1, n_classes, len(hit))) % n_classes
    return noisy


def long_tail(y: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Positions (M,), ascending, of a subset of labels y (N,) whose class sizes fall off exponentially.

        n_c = n₀·ratio^(c/(C−1)), rounded, at least 1 and at most what class c has (Cui et al. 2019)

    n₀ is the size of the largest class; ratio 1 keeps all rows.
    """
    sizes = np.bincount(y)
    wanted = np.round(sizes.max() * ratio ** (np.arange(len(sizes)) / max(1, len(sizes) - 1)))
    kept = np.minimum(sizes, np.maximum(wanted, 1)).astype(int) if ratio < 1 else sizes
    rows = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in enumerate(kept)]
    return np.sort(np.concatenate(rows))

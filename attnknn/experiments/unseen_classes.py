"""Classes that neither an encoder nor a memory has seen."""

import dataclasses

import numpy as np

from attnknn.core.artifacts import Split
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder
from attnknn.encoder.fit import fit_encoder


def known_classes(n_classes: int, share: float, repeats: int, seed: int) -> list[np.ndarray]:
    """Numbers of the known classes in each repeat, drawn at random: all but a share; at least two, at most all but one.

    Fewer repeats where classes allow no more; of two classes both are known.
    """
    if n_classes < 3:
        return [np.arange(n_classes)]
    n = min(max(2, round((1 - share) * n_classes)), n_classes - 1)
    rng = np.random.default_rng(seed)
    drawn = dict.fromkeys(tuple(np.sort(rng.permutation(n_classes)[:n])) for _ in range(100 * repeats))
    return [np.array(known) for known in list(drawn)[:repeats]]


def encoder_of_known(
    split: Split, known: np.ndarray, settings: TrainEmbedder, stored: Encoder, seed: int, device: str, label: str
) -> Encoder:
    """An encoder trained on rows of the known classes alone; the stored one if it reads no labels, or knows all."""
    if settings.representation != "trained" or len(known) == len(split.classes):
        return stored
    rows = np.isin(split.y, known)
    part = {name: np.asarray(getattr(split, name))[rows] for name in ("x", "part")}
    y, names = np.searchsorted(known, np.asarray(split.y)[rows]), tuple(split.classes[c] for c in known)
    groups = None if split.groups is None else split.groups[rows]
    own = dataclasses.replace(split, **part, y=y, classes=names, groups=groups)
    return fit_encoder(own, settings, seed, device, label)[0]

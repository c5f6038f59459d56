"""Label noise and class imbalance, of label arrays, embedding spaces and splits."""

import dataclasses
from collections.abc import Sequence
from itertools import product

import numpy as np

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

NOISES = ("symmetric", "asymmetric", "instance")
TRAINING_PARTS = (BANK, FIT, VAL)
NOISY_PARTS = {"bank": (BANK,), "all": TRAINING_PARTS}  # held-out labels clean, or as wrong as the bank's


def instance_noise(y: np.ndarray, rate: float, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A copy of labels y (N,) with round(rate·N) rows changed to their most similar other class.

    Rows are drawn without replacement, with weights exp(−mᵢ/sd(m)), mᵢ = score of the row's own class − highest score
    of another: most noise is near the class border, as with human annotators. Similar to the part-dependent noise of
    Xia et al. (2020), where rates and classes follow from random projections of each row.

    Args:
        scores: (N, C), similarity of each row to each class; see `class_similarity`.
    """
    rows = np.arange(len(y))
    others = np.array(scores, dtype=np.float64)
    own = others[rows, y]
    others[rows, y] = -np.inf
    margin = own - others.max(1)
    # The highest of log weight + Gumbel noise are a weighted draw without replacement (Efraimidis & Spirakis 2006).
    keys = rng.gumbel(size=len(y)) - margin / max(float(margin.std()), 1e-12)
    changed = np.argsort(-keys, kind="stable")[: round(rate * len(y))]
    noisy = np.array(y)
    noisy[changed] = others[changed].argmax(1)
    return noisy


def class_similarity(x: np.ndarray, y: np.ndarray, n_classes: int) -> np.ndarray:
    """‖x‖² − ‖x − μ_c‖² = 2·x·μ_c − ‖μ_c‖² of rows x (N, …) and class means μ_c: float32 (N, C)."""
    flat = x.reshape(len(x), -1).astype(np.float32)
    member = np.eye(n_classes, dtype=np.float32)[y]  # (N, C)
    means = (member.T @ flat) / np.maximum(member.sum(0), 1)[:, None]
    return 2 * flat @ means.T - (means**2).sum(1)


def noisy_labels(
    y: np.ndarray, rate: float, n_classes: int, kind: str, rng: np.random.Generator, scores: np.ndarray | None = None
) -> np.ndarray:
    """A copy of labels y (N,) with round(rate·N) wrong ones.

    * symmetric: random rows change to another class, all equally likely.
    * asymmetric: random rows change from class c to c + 1 (mod C). From a rate of 0.5 on, wrong labels of a class are
      at least as frequent as right ones (Patrini et al. 2017).
    * instance: see `instance_noise`, with its scores (N, C).
    """
    if kind == "instance":
        assert scores is not None, "instance noise depends on the rows"
        return instance_noise(y, rate, scores, rng)
    noisy = np.array(y)
    rows = rng.permutation(len(y))[: round(rate * len(y))]
    shift = rng.integers(1, n_classes, len(rows)) if kind == "symmetric" else 1
    noisy[rows] = (noisy[rows] + shift) % n_classes
    return noisy


def imbalanced(y: np.ndarray, ratio: float, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Positions (M,), ascending, of a random subset of labels y (N,) with class sizes n_c.

        long_tail: n_c = n₀·ratio^(c/(C−1))     (Cui et al. 2019)
        step: n_c = n₀ for c < ⌈C/2⌉, else n₀·ratio     (Buda et al. 2018)

    n₀ is the size of the largest class; n_c is rounded, at least 1 and at most the size of class c. Ratio 1 keeps all
    rows.
    """
    sizes = np.bincount(y)
    classes = np.arange(len(sizes))
    if kind == "long_tail":
        factor = ratio ** (classes / max(1, len(sizes) - 1))
    else:
        factor = np.where(classes >= -(-len(sizes) // 2), ratio, 1.0)
    target = np.maximum(np.round(sizes.max() * factor), 1)
    new_sizes = np.minimum(sizes, target).astype(int) if ratio < 1 else sizes
    rows = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in enumerate(new_sizes)]
    return np.sort(np.concatenate(rows))


def condition_name(kind: str, rate: float, parts: Sequence[int] = (BANK,)) -> str:
    """`noise 0.3` (symmetric), `asymmetric noise 0.3`, `noise of all labels 0.3`, `long tail 0.1`, `step 0.1`."""
    if kind in NOISES:
        name = "noise" if kind == "symmetric" or rate == 0 else f"{kind} noise"
        return f"{name}{' of all labels' * (len(parts) > 1 and rate > 0)} {rate}"
    return f"{kind.replace('_', ' ')} {rate}"


def noise_conditions(
    kinds: Sequence[str], rates: Sequence[float], labels: Sequence[str], classes: int
) -> dict[str, tuple[str, float, tuple[int, ...]]]:
    """Name → (kind, rate, parts) of every kind at every rate, in each of the keys `labels` of `NOISY_PARTS`.

    What is the same is included once: rate 0 of all kinds and, of two classes, asymmetric noise, as symmetric.
    All but symmetric noise of three or more classes is included below 0.5 only: then right labels outnumber wrong ones.
    """
    conditions: dict[str, tuple[str, float, tuple[int, ...]]] = {}
    for name, kind, rate in product(labels, kinds, rates):
        if rate < 0.5 or (kind == "symmetric" and classes > 2):
            kind = "symmetric" if classes == 2 and kind == "asymmetric" else kind
            noisy = kind, rate, NOISY_PARTS[name]
            conditions.setdefault(condition_name(*noisy), noisy)
    return conditions


def imbalance_conditions(kinds: Sequence[str], ratios: Sequence[float], classes: int) -> dict[str, tuple[str, float]]:
    """Name → (kind, ratio) of every kind at every ratio; a step between two classes is a long tail, included once."""
    kinds = ["long_tail"] if classes == 2 else kinds
    return {condition_name(kind, ratio): (kind, ratio) for kind in kinds for ratio in ratios}


def with_noise(
    spaces: Sequence[EmbeddingSpace],
    rate: float,
    rng: np.random.Generator,
    kind: str = "symmetric",
    parts: Sequence[int] = (BANK,),
) -> list[EmbeddingSpace]:
    """The same spaces with round(rate·N) wrong labels in each of these parts of the first one.

    A row that is in a bank or, with other parts, in any part but test of any space has the same label there.

    Neighbours do not depend on labels and are unchanged; neighbour statistics are computed anew. Instance noise uses
    the cosine of each row and the class means of the clean bank, in the first embeddings.

    Args:
        spaces: embeddings of the same rows, as of a cross-fit; the first has the largest bank.
    """
    first = spaces[0].embeddings
    y = np.array(first.y)
    for part in parts:
        rows = first.rows(part)
        scores = first.z[rows] @ spaces[0].statistics.prototypes.T if kind == "instance" else None
        y[rows] = noisy_labels(y[rows], rate, len(first.classes), kind, rng, scores)
    result = []
    for space in spaces:
        noisy = np.isin(space.embeddings.part, parts)
        e = dataclasses.replace(space.embeddings, y=np.where(noisy, y, space.embeddings.y))
        statistics = neighbour_statistics(e, space.neighbours, space.statistics.sizes)
        result.append(EmbeddingSpace(e, space.neighbours, statistics))
    return result


def with_imbalance(
    spaces: Sequence[EmbeddingSpace],
    ratio: float,
    rng: np.random.Generator,
    device: str = "cpu",
    kind: str = "long_tail",
    most: int | None = None,
) -> list[EmbeddingSpace]:
    """Subsample the bank so that its rarest class has `ratio` of the largest one's rows, and search again, exactly.

    Rows are numbered anew.

    Args:
        spaces: as for `with_noise`.
        most: neighbours to search for, or those that the neighbour statistics need if more; None for as many as before.
    """
    first = spaces[0].embeddings
    bank = first.rows(BANK)
    removed = np.delete(bank, imbalanced(np.asarray(first.y[bank]), ratio, kind, rng))
    result = []
    for space in spaces:
        e = space.embeddings
        rows = np.flatnonzero((e.part != BANK) | ~np.isin(np.arange(len(e.part)), removed))
        logits = None if e.logits is None else e.logits[rows]
        subset = dataclasses.replace(e, z=np.asarray(e.z[rows]), y=e.y[rows], part=e.part[rows], logits=logits)
        stored = space.neighbours.ids.shape[1]
        k = stored if most is None else min(stored, max(most, *space.statistics.sizes))
        result.append(retrieve(subset, k, space.statistics.sizes, space.neighbours.metric, device))
    return result


NETWORK = "cross_entropy"  # the variant that is a plain network, trained with cross-entropy alone
NETWORKS = (NETWORK, f"{NETWORK}_cleaned")  # plain networks under noise: trained on noisy and on cleaned labels


def with_wrong_labels(split: Split, rate: float, kind: str, rng: np.random.Generator) -> Split:
    """The same rows with round(rate·N) wrong labels in each of bank, fit and val; test labels are unchanged.

    Instance noise uses the distances of the raw rows to the class means, before any encoder is trained.
    """
    y, c = np.array(split.y), len(split.classes)
    for part in TRAINING_PARTS:
        rows = split.rows(part)
        scores = class_similarity(np.asarray(split.x[rows]), y[rows], c) if kind == "instance" else None
        y[rows] = noisy_labels(y[rows], rate, c, kind, rng, scores)
    return dataclasses.replace(split, y=y)


def with_rare_classes(split: Split, ratio: float, kind: str, rng: np.random.Generator) -> Split:
    """Subsample bank, fit and val by `imbalanced`; test rows are unchanged, and rows are numbered anew."""
    by_part = [split.rows(TEST)]
    for part in TRAINING_PARTS:
        rows = split.rows(part)
        by_part.append(rows[imbalanced(np.asarray(split.y[rows]), ratio, kind, rng)])
    rows = np.sort(np.concatenate(by_part))
    return dataclasses.replace(split, x=np.asarray(split.x[rows]), y=split.y[rows], part=split.part[rows])

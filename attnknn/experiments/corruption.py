"""What can be wrong with labelled rows: labels that are wrong, classes that are rare. Nothing of ours is imported."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.neighbours.search import retrieve
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.statistics import neighbour_statistics

NOISES = ("symmetric", "asymmetric", "instance")
IMBALANCES = ("long_tail", "step")


def _hit(y: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(len(y))[: round(rate * len(y))]


def symmetric_noise(y: np.ndarray, rate: float, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    """A copy of labels y (N,) in which round(rate·N) rows, chosen at random, carry another class, each as likely."""
    noisy = np.array(y)
    hit = _hit(y, rate, rng)
    noisy[hit] = (noisy[hit] + rng.integers(1, n_classes, len(hit))) % n_classes
    return noisy


def asymmetric_noise(y: np.ndarray, rate: float, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    """A copy of labels y (N,) in which round(rate·N) rows, chosen at random, carry class c + 1 (mod C) instead of c.

    From a rate of 0.5 on the wrong label of a class is as common as its right one (Patrini et al. 2017).
    """
    noisy = np.array(y)
    hit = _hit(y, rate, rng)
    noisy[hit] = (noisy[hit] + 1) % n_classes
    return noisy


def instance_noise(y: np.ndarray, rate: float, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A copy of labels y (N,) in which round(rate·N) rows carry the other class that they resemble most.

    Rows are drawn without replacement, with weights exp(−mᵢ/sd(m)), mᵢ = score of the row's own class − highest score
    of another: rows near the border are hit most, as an annotator would err. The same in spirit as the part-dependent
    noise of Xia et al. (2020), whose rates and classes come of random projections of each row.

    Args:
        scores: (N, C), how far each row resembles each class; see `resemblance`.
    """
    rows = np.arange(len(y))
    others = np.array(scores, dtype=np.float64)
    own = others[rows, y]
    others[rows, y] = -np.inf
    margin = own - others.max(1)
    # The highest of log weight + Gumbel noise are a weighted draw without replacement (Efraimidis & Spirakis 2006).
    keys = rng.gumbel(size=len(y)) - margin / max(float(margin.std()), 1e-12)
    hit = np.argsort(-keys, kind="stable")[: round(rate * len(y))]
    noisy = np.array(y)
    noisy[hit] = others[hit].argmax(1)
    return noisy


def resemblance(x: np.ndarray, y: np.ndarray, n_classes: int) -> np.ndarray:
    """How near rows x (N, …) lie to each class's mean: 2·x·μ_c − ‖μ_c‖², float32 (N, C), that is ‖x‖² − ‖x − μ_c‖²."""
    flat = x.reshape(len(x), -1).astype(np.float32)
    member = np.eye(n_classes, dtype=np.float32)[y]  # (N, C)
    means = (member.T @ flat) / np.maximum(member.sum(0), 1)[:, None]
    return 2 * flat @ means.T - (means**2).sum(1)


def noisy_labels(
    y: np.ndarray, rate: float, n_classes: int, kind: str, scores: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """A copy of labels y (N,) with round(rate·N) wrong ones.

    Args:
        kind: one of `NOISES`.
        scores: (N, C) of `instance_noise`; the other kinds do not look at them.
    """
    if kind == "instance":
        assert scores is not None, "instance noise depends on the rows"
        return instance_noise(y, rate, scores, rng)
    make = {"symmetric": symmetric_noise, "asymmetric": asymmetric_noise}[kind]
    return make(y, rate, n_classes, rng)


def _subset(y: np.ndarray, wanted: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    sizes = np.bincount(y)
    kept = np.minimum(sizes, np.maximum(np.round(wanted), 1)).astype(int) if ratio < 1 else sizes
    rows = [rng.permutation(np.flatnonzero(y == c))[:n] for c, n in enumerate(kept)]
    return np.sort(np.concatenate(rows))


def long_tail(y: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Positions (M,), ascending, of a subset of labels y (N,) whose class sizes fall off exponentially.

        n_c = n₀·ratio^(c/(C−1)), rounded, at least 1 and at most what class c has (Cui et al. 2019)

    n₀ is the size of the largest class; ratio 1 keeps all rows.
    """
    sizes = np.bincount(y)
    return _subset(y, sizes.max() * ratio ** (np.arange(len(sizes)) / max(1, len(sizes) - 1)), ratio, rng)


def step_imbalance(y: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Positions (M,), ascending, of a subset of labels y (N,) in which the last half of the classes is rare.

        n_c = n₀ for c < ⌈C/2⌉, else n₀·ratio, rounded, at least 1 and at most what class c has (Buda et al. 2018)

    n₀ is the size of the largest class; ratio 1 keeps all rows.
    """
    sizes = np.bincount(y)
    rare = np.arange(len(sizes)) >= -(-len(sizes) // 2)
    return _subset(y, sizes.max() * np.where(rare, ratio, 1.0), ratio, rng)


def imbalanced(y: np.ndarray, ratio: float, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Positions (M,), ascending, of a subset of labels y (N,) by a kind out of `IMBALANCES`."""
    return {"long_tail": long_tail, "step": step_imbalance}[kind](y, ratio, rng)


def noise_conditions(kinds: Sequence[str], rates: Sequence[float]) -> dict[str, tuple[str, float]]:
    """Name → (kind, rate) of every kind at every rate: `noise 0.3`, `asymmetric noise 0.3`, `instance noise 0.3`.

    Rate 0 is the same for all kinds, and there once. Asymmetric noise is there below 0.5 only.
    """
    conditions: dict[str, tuple[str, float]] = {}
    for kind in kinds:
        for rate in rates:
            if kind == "asymmetric" and rate >= 0.5:
                continue
            name = f"noise {rate}" if kind == "symmetric" or rate == 0 else f"{kind} noise {rate}"
            conditions.setdefault(name, (kind, rate))
    return conditions


def imbalance_conditions(kinds: Sequence[str], ratios: Sequence[float]) -> dict[str, tuple[str, float]]:
    """Name → (kind, ratio) of every kind at every ratio: `long tail 0.1`, `step 0.1`."""
    return {f"{kind.replace('_', ' ')} {ratio}": (kind, ratio) for kind in kinds for ratio in ratios}


def with_noise(
    spaces: Sequence[EmbeddingSpace], rate: float, rng: np.random.Generator, kind: str = "symmetric"
) -> list[EmbeddingSpace]:
    """The same spaces, round(rate·N) rows of the first one's bank labelled as another class.

    Neighbours stay, since they know no labels; what their labels say of them is gathered again. Instance noise goes by
    the cosine of each row and the class means of the clean bank, in the first embeddings.

    Args:
        spaces: several embeddings of the same rows, as of a cross-fit; the first has the largest bank.
        kind: one of `NOISES`.
    """
    first = spaces[0].embeddings
    bank, y = first.rows(BANK), np.array(first.y)
    scores = first.z[bank] @ spaces[0].statistics.prototypes.T if kind == "instance" else None
    y[bank] = noisy_labels(y[bank], rate, len(first.classes), kind, scores, rng)
    return relabelled(spaces, y)


def relabelled(spaces: Sequence[EmbeddingSpace], y: np.ndarray) -> list[EmbeddingSpace]:
    """The same spaces, their bank rows labelled y (N,); the labels of all other rows stay."""
    relabelled_spaces = []
    for space in spaces:
        e = space.embeddings
        e = dataclasses.replace(e, y=np.where(e.part == BANK, y, e.y))
        statistics = neighbour_statistics(e, space.neighbours, space.statistics.sizes)
        relabelled_spaces.append(EmbeddingSpace(e, space.neighbours, statistics))
    return relabelled_spaces


def with_imbalance(
    spaces: Sequence[EmbeddingSpace],
    ratio: float,
    rng: np.random.Generator,
    device: str = "cpu",
    kind: str = "long_tail",
    most: int | None = None,
) -> list[EmbeddingSpace]:
    """The same embeddings with fewer bank rows, whose rarest class has `ratio` of the largest one's rows.

    They are searched again, exactly. Row ids are those of the rows that are left.

    Args:
        spaces: as for `with_noise`.
        kind: one of `IMBALANCES`.
        most: neighbours that are searched for, beside those that the evidence needs; None for as many as before.
    """
    first = spaces[0].embeddings
    bank = first.rows(BANK)
    lost = np.zeros(len(first.y), dtype=bool)
    lost[bank] = True
    lost[bank[imbalanced(np.asarray(first.y[bank]), ratio, kind, rng)]] = False
    rare = []
    for one in spaces:
        e = one.embeddings
        rows = np.flatnonzero(~(lost & (e.part == BANK)))
        logits = None if e.logits is None else e.logits[rows]
        left = dataclasses.replace(e, z=np.asarray(e.z[rows]), y=e.y[rows], part=e.part[rows], logits=logits)
        stored = one.neighbours.ids.shape[1]
        k = stored if most is None else min(stored, max(most, *one.statistics.sizes))
        rare.append(retrieve(left, k, one.statistics.sizes, one.neighbours.metric, device))
    return rare


_LEARNED_FROM = (BANK, FIT, VAL)
NETWORK = "cross_entropy"  # the variant that is a plain network, trained with cross-entropy alone
NETWORKS = (NETWORK, f"{NETWORK}_cleaned")  # plain networks under noise: on labels as given, and as they were cleaned


def with_wrong_labels(split: Split, rate: float, kind: str, rng: np.random.Generator) -> Split:
    """The same rows, round(rate·N) labels wrong in each of bank, fit and val; the labels of test rows stay.

    Instance noise goes by how near each row as it is lies to the class means: no encoder has seen it yet.

    Args:
        kind: one of `NOISES`.
    """
    y, c = np.array(split.y), len(split.classes)
    for part in _LEARNED_FROM:
        rows = split.rows(part)
        scores = resemblance(np.asarray(split.x[rows]), y[rows], c) if kind == "instance" else None
        y[rows] = noisy_labels(y[rows], rate, c, kind, scores, rng)
    return dataclasses.replace(split, y=y)


def with_rare_classes(split: Split, ratio: float, kind: str, rng: np.random.Generator) -> Split:
    """Fewer rows: bank, fit and val each fall off to `ratio`, and keep a row a class; test rows stay.

    Row ids are those of the rows that are left.

    Args:
        kind: one of `IMBALANCES`.
    """
    kept = [split.rows(TEST)]
    for part in _LEARNED_FROM:
        rows = split.rows(part)
        kept.append(rows[imbalanced(np.asarray(split.y[rows]), ratio, kind, rng)])
    rows = np.sort(np.concatenate(kept))
    return dataclasses.replace(split, x=np.asarray(split.x[rows]), y=split.y[rows], part=split.part[rows])

"""Novelty: how unlike the rows of a memory a query is, as a conformal p value.

The score of a query is a weighted sum of features that grow as it is less like the memory: the logarithms of its
distances to the 1st, 5th and 20th neighbour and of their mean relative to those of its neighbours, and of 1 − p of the
most probable class. No example of anything new is needed to weight them: each class in turn is left out of the memory,
and its held-out rows are told from those of all classes by logistic regression with weights that are not negative. The
weights of the distances are above 0, so that a query far from all rows is novel whatever its probabilities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import digamma, expit

from attnknn.classifier.persistence import AnyHead
from attnknn.core.artifacts import BANK, VAL, Neighbours
from attnknn.evaluation.conformal import p_values
from attnknn.index.bank import build
from attnknn.neighbours.space import EmbeddingSpace

NEIGHBOURS = (1, 5, 20)  # whose distances are features; the last also of the mean
REACH = NEIGHBOURS[-1]
LEAST = np.array([0.05, 0.05, 0.05, 0.0, 0.0])  # of the weights
PRIOR = np.array([0.3, 0.3, 0.3, 0.3, 0.1])  # weights that few rows keep
_STRENGTH = 10.0  # of the prior, in rows
_CLASSES, _ROWS = 20, 200  # left out, and rows of each, at most
_DIMENSION = 5  # neighbours that tell it
_SURE = 1e-6  # least 1 − p
_NEGLIGIBLE = 1e-3  # squared distance, in that to the last neighbour, below which rows count as identical
_LEAST_SPREAD = 0.05  # of a feature, so that rounding does not order identical rows

Features = Float[np.ndarray, "B 5"]


@dataclass(frozen=True)
class Novelty:
    """Fitted weights of the features, and the scores of held-out rows that make p values of others."""

    weights: Float[np.ndarray, " 5"]  # of features less `centre`, in units of `spread`
    centre: Float[np.ndarray, " 5"]
    spread: Float[np.ndarray, " 5"]
    scores: Float[np.ndarray, " V"]  # of held-out rows
    floor: float  # added to squared distances before their logarithm

    def p_values(
        self, sims: Float[np.ndarray, "B K"], density: Float[np.ndarray, "B K"], confidence: Float[np.ndarray, " B"]
    ) -> Float[np.ndarray, " B"]:
        """Share of held-out rows, and of the query itself, that are at least as novel as each query.

        Args:
            sims: −d² to the neighbours, nearest first. density: of the neighbours; see `NeighbourStatistics`.
            confidence: highest probability.
        """
        features = novelty_features(sims, density, confidence, self.floor)
        return p_values(self.scores, (features - self.centre) / self.spread @ self.weights)


def novelty_features(
    sims: Float[np.ndarray, "B K"], density: Float[np.ndarray, "B K"], confidence: Float[np.ndarray, " B"], floor: float
) -> Features:
    """Features of queries; see the module. Those of fewer neighbours are of as many as there are."""
    squared = np.where(np.isfinite(sims), np.maximum(-sims.astype(np.float64), 0), np.nan)  # NaN: no such neighbour
    furthest = [np.nanmax(squared[:, :k], axis=1) for k in NEIGHBOURS]
    own = np.log(np.nanmean(squared[:, :REACH], axis=1) + floor)
    theirs = np.log(np.maximum(-density[:, :REACH].astype(np.float64), 0) + floor)
    theirs = np.nanmean(np.where(np.isnan(squared[:, :REACH]), np.nan, theirs), axis=1)
    unsure = np.maximum(1 - confidence, _SURE)
    return np.stack([*(np.log(d + floor) for d in furthest), own - theirs, np.log(unsure)], 1)


def fit_novelty(
    spaces: Sequence[EmbeddingSpace],
    head: AnyHead,
    calibrated: Callable[[np.ndarray], np.ndarray],
    confidence: Float[np.ndarray, " V"],
    k: int,
    seed: int,
    unit: float,
    n_rows: int,
) -> Novelty:
    """Fit the weights on VAL rows, and keep the scores of these.

    Held-out rows have fewer neighbours to choose from than new ones will: in m dimensions distances among n rows are
    (N/n)^(1/m) times those among N. There log d² to the k-th of evenly spread neighbours is 2/m·ψ(k) and a constant on
    average, which gives m; by the first five neighbours, which even small classes have.

    Args:
        calibrated: votes → probabilities. confidence: the highest of each VAL row.
        k: neighbours that the head reads.
        unit: of the distances in `spaces`.
        n_rows: of the memory.
    """
    parts = [(space, rows) for space in spaces if len(rows := space.embeddings.rows(VAL))]
    reach = min(k, REACH)
    pairs = [neighbours_of(space, rows, reach, unit) for space, rows in parts]
    floor = _NEGLIGIBLE * (float(np.median(np.concatenate([-sims[:, -1] for sims, _ in pairs]))) or 1.0)
    by_part = np.split(confidence, np.cumsum([len(rows) for _, rows in parts])[:-1])
    known = np.concatenate([novelty_features(*pair, own, floor) for pair, own in zip(pairs, by_part, strict=True)])
    missing = np.concatenate([np.full(len(rows), np.log(n_rows / bank_size(space))) for space, rows in parts])
    known[:, :3] -= _growth(parts, floor / unit**2) * missing[:, None]
    centre, spread = known.mean(0), np.maximum(known.std(0), _LEAST_SPREAD)
    left_out = [] if spaces[0].counts is not None else _left_out(spaces, head, calibrated, k, seed, floor)
    unknown = (np.concatenate([np.empty((0, len(centre))), *left_out]) - centre) / spread
    known = (known - centre) / spread
    weights = fit_weights(known, unknown)
    return Novelty(weights, centre, spread, np.sort(known @ weights), floor)


def _growth(parts: Sequence[tuple[EmbeddingSpace, np.ndarray]], floor: float) -> float:
    """2/m of `fit_novelty`."""
    sims = [space.neighbours.take(rows, min(_DIMENSION, space.neighbours.ids.shape[1]))[1] for space, rows in parts]
    first, last = (np.concatenate([np.log(floor - own[:, i]) for own in sims]) for i in (0, -1))
    between = digamma(min(own.shape[1] for own in sims)) - digamma(1)
    return float(np.clip((last - first).mean() / between, 0, 2)) if between > 0 else 0.0


def bank_size(space: EmbeddingSpace) -> int:
    """Number of bank rows."""
    return int((space.embeddings.part == BANK).sum() if space.counts is None else space.counts.sum())


def neighbours_of(space: EmbeddingSpace, rows: np.ndarray, k: int, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Similarities (M, K) and densities (M, K) of at most k nearest neighbours of rows."""
    ids, sims = space.neighbours.take(rows, min(k, space.neighbours.ids.shape[1]))
    return sims * unit**2, space.statistics.density[ids] * unit**2


def _left_out(
    spaces: Sequence[EmbeddingSpace],
    head: AnyHead,
    calibrated: Callable[[np.ndarray], np.ndarray],
    k: int,
    seed: int,
    floor: float,
) -> list[Features]:
    """Features of VAL rows of some classes, each in a memory without its class."""
    rng, n_classes = np.random.default_rng(seed), len(spaces[0].embeddings.classes)
    features = []
    for c in rng.permutation(n_classes)[:_CLASSES]:
        for space in spaces:
            e = space.embeddings
            y = np.asarray(e.y)
            rows = rng.permutation(np.flatnonzero((e.part == VAL) & (y == c)))[: -(-_ROWS // len(spaces))]
            others = np.flatnonzero((e.part == BANK) & (y != c))
            if not len(rows) or len(others) < 2:
                continue
            rows = np.sort(rows)
            index = build(np.asarray(e.z)[others], others, metric=space.neighbours.metric)
            ids, sims = index.search(np.asarray(e.z)[rows], min(space.neighbours.ids.shape[1], len(others)))
            stored = Neighbours(rows.astype(np.int32), ids.astype(np.int32), sims, space.neighbours.metric)
            own = EmbeddingSpace(e, stored, space.statistics, space.log_weight)
            with torch.inference_mode():
                batch = own.around(rows, min(k, getattr(head, "k", 0) or k, ids.shape[1]), head.needs)
                votes = head(batch.to(torch.float64))[0].numpy()
            probs = np.delete(calibrated(votes), c, 1)
            confidence = probs.max(1) / probs.sum(1)
            features.append(novelty_features(*neighbours_of(own, rows, min(k, REACH)), confidence, floor))
    return features


def fit_weights(known: Features, unknown: Features) -> Float[np.ndarray, " 5"]:
    """Weights w ≥ `LEAST` by logistic regression, both kinds of rows counted alike, with a normal prior at `PRIOR`."""
    if not len(unknown):
        return PRIOR
    x, y = np.concatenate([known, unknown]), np.repeat([0.0, 1.0], [len(known), len(unknown)])
    share = np.repeat([0.5 / len(known), 0.5 / len(unknown)], [len(known), len(unknown)])
    strength = _STRENGTH / min(len(known), len(unknown))

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        away = values[:-1] - PRIOR
        logits = x @ values[:-1] + values[-1]
        slope = share * (expit(logits) - y)
        value = share @ (np.logaddexp(0, logits) - y * logits) + strength / 2 * away @ away
        return float(value), np.append(x.T @ slope + strength * away, slope.sum())

    bounds = [*((least, None) for least in LEAST), (None, None)]
    return minimize(loss, np.append(PRIOR, 0.0), jac=True, bounds=bounds, method="L-BFGS-B").x[:-1]

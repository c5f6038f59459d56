"""What the theory of attention over nearest neighbours assumes or claims, measured: norms, √n, the rate of the error,
equivalence of distances, temperatures, entropy. The claims are those of Haris (2024, "kNN Attention Demystified").
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm, rankdata

from attnknn.core.artifacts import Predictions
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import Table, intervals_and_tests
from attnknn.experiments.ensemble import weight_entropy
from attnknn.experiments.k_sweep import KNN, at, parted, root
from attnknn.heads.registry import LearnedHead
from attnknn.heads.tabr import TabR
from attnknn.neighbours.space import EmbeddingSpace

COLUMNS = ("quantity", "item", "value", "low", "high")
ENTROPY_COLUMNS = ("decile", "rows", "lowest", "highest", "entropy", "null_mass", "error", "low", "high")
FIT_COLUMNS = ("method", "k", "error", "fitted", "low", "high")
EXPONENTS = (0.1, 4.0)  # of `fit_curve`; below it the curve is a logarithm, above it all but k = 1 are alike
FEWEST_KS = 4  # one more than the curve has numbers
_BATCH = 256
_STILL = 1e-20  # squared movement of a curve that only rounding moves
_ROUNDING = 1e-6  # of squared distances of float32 unit vectors


def fit_curve(ks: Sequence[int], errors: np.ndarray) -> np.ndarray:
    """a, b and c of a + b·k^(−c) by least squares, for many curves at once.

    For a given c the rest is linear and has a closed form, so only c is searched, on a grid of 400 between `EXPONENTS`
    (variable projection, Golub & Pereyra 1973). A curve that does not move has b = 0 and the lowest c.

    Args:
        ks: (K,).
        errors: (R, K).

    Returns:
        (R, 4): a, b, c, and R², the share of the curve's movement that is fitted (1 where it does not move).
    """
    errors = np.asarray(errors, np.float64)
    grid = np.geomspace(*EXPONENTS, 400)
    x = np.asarray(ks, np.float64) ** -grid[:, None]  # (G, K)
    x_mean, y_mean = x.mean(1), errors.mean(1)
    x, y = x - x_mean[:, None], errors - y_mean[:, None]
    slope, total = y @ x.T / (x**2).sum(1), (y**2).sum(1)  # (R, G), (R,)
    left = total[:, None] - slope**2 * (x**2).sum(1)
    moves, rows = total > _STILL, np.arange(len(errors))
    best = np.where(moves, left.argmin(1), 0)
    b = np.where(moves, slope[rows, best], 0)
    explained = np.where(moves, 1 - left[rows, best] / np.where(moves, total, 1), 1)
    return np.stack([y_mean - b * x_mean[best], b, grid[best], explained], 1)


def error_curves(answers: Predictions, bins: int, resamples: int, confidence: float, seed: int) -> tuple[Table, Table]:
    """The error of each method against k, and a + b·k^(−c) through it.

    The intervals of a, b, c are those of the curves through resampled test rows, the same rows at every k.

    Args:
        answers: of the test rows, named `<method>@<k>`, at least `FEWEST_KS` of each method.

    Returns:
        Rows of `COLUMNS` (quantities fit_a, fit_b, fit_c, fit_r2; items are methods), and of `FIT_COLUMNS` (low and
        high are Wilson's of the error). Both empty where there are fewer k.
    """
    found: Table = []
    points: Table = []
    for method in KNN:
        names = {k: m for m, (name, k) in enumerate(map(parted, answers.methods)) if name == method and k}
        ks = sorted(names)
        if len(ks) < FEWEST_KS:
            continue
        probs = np.asarray(answers.probs)[[names[k] for k in ks]]
        hits = probs.argmax(2) == answers.y  # (K, N)
        errors = 1 - hits.mean(1)
        a, b, c, explained = fit_curve(ks, errors[None])[0]
        drawn = 1 - metrics.bootstrap(probs, answers.y, bins, resamples, seed, ("accuracy",))[:, :, 0].T  # (R, K)
        fits = fit_curve(ks, drawn)
        for i, (name, value) in enumerate((("fit_a", a), ("fit_b", b), ("fit_c", c))):
            low, high = metrics.interval(fits[:, i], confidence)
            found.append({"quantity": name, "item": method, "value": float(value), "low": low, "high": high})
        found.append({"quantity": "fit_r2", "item": method, "value": float(explained), "low": None, "high": None})
        for k, error, hit in zip(ks, errors, hits, strict=True):
            low, high = metrics.wilson(~hit, confidence)
            fitted = float(a + b * k**-c)
            points.append({"method": method, "k": k, "error": error, "fitted": fitted, "low": low, "high": high})
    return found, points


def auc(scores: np.ndarray, wrong: np.ndarray, confidence: float) -> tuple[float, float | None, float | None]:
    """The chance that a wrong row scores above a right one, ties half, with its interval (DeLong et al. 1988).

    The interval is normal on the scale of the logit, so that it stays within [0, 1].

    Args:
        scores: (N,).
        wrong: (N,) bool.

    Returns:
        value, low, high. NaN without wrong or right rows; the ends are None with fewer than two of either, or where
        the two kinds do not overlap.
    """
    of = [scores[wrong], scores[~wrong]]
    m, n = map(len, of)
    if not m or not n:
        return float("nan"), None, None
    ranks = rankdata(np.concatenate(of))
    above = (ranks[:m] - rankdata(of[0])) / n  # (m,) share of right rows that each wrong one is above
    below = 1 - (ranks[m:] - rankdata(of[1])) / m  # (n,) share of wrong rows that each right one is below
    value = float(above.mean())
    if min(m, n) < 2 or not 0 < value < 1:
        return value, None, None
    deviation = float(np.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)) / (value * (1 - value))
    ends = np.log(value / (1 - value)) + np.array([-1, 1]) * norm.ppf((1 + confidence) / 2) * deviation
    low, high = 1 / (1 + np.exp(-ends))
    return value, float(low), float(high)


def norms(z: np.ndarray) -> Table:
    """Least, mean and greatest length of embeddings (N, D)."""
    lengths = np.linalg.norm(np.asarray(z, np.float64), axis=1)
    of = {"min": lengths.min(), "mean": lengths.mean(), "max": lengths.max()}
    return [{"quantity": "norm", "item": i, "value": float(v), "low": None, "high": None} for i, v in of.items()]


def equivalence(space: EmbeddingSpace, rows: np.ndarray, k: int) -> Table:
    """Whether −‖q − k‖² and q·k order a query's k neighbours alike, as they must on unit vectors.

    There −‖q − k‖² = 2 q·k − 2. Neighbours that differ by no more than rounding may swap.

    Returns:
        Rows of `COLUMNS`: same_order, the share of the queries; largest_gap, the largest |−‖q − k‖² − (2 q·k − 2)|.
    """
    same, gap = 0, 0.0
    for start in range(0, len(rows), _BATCH):
        near = space.around(rows[start : start + _BATCH], k, ("query", "keys"))
        there = torch.isfinite(near.sims)
        query, keys = near.given("query").double(), near.given("keys").double()
        l2 = -(query[:, None] - keys).square().sum(2)  # (B, K)
        ip = 2 * (keys @ query[:, :, None]).squeeze(2) - 2
        gap = max(gap, float((l2 - ip).abs()[there].max()))
        order = l2.masked_fill(~there, -torch.inf).argsort(dim=1, descending=True, stable=True)
        # A missing neighbour comes last and breaks no order.
        steps = ip.masked_fill(~there, -1e9).gather(1, order).diff(dim=1)
        same += int((steps <= _ROUNDING).all(1).sum())
    found = {"same_order": same / len(rows), "largest_gap": gap}
    return [{"quantity": q, "item": "test rows", "value": v, "low": None, "high": None} for q, v in found.items()]


def temperatures(head: LearnedHead) -> Table:
    """τ of each attention head at the start and as learned, in the units of the similarities."""
    learned = head.log_temperature.exp()[None] if isinstance(head, TabR) else head.temperatures()
    return [
        {"quantity": quantity, "item": f"head {h}", "value": float(value), "low": None, "high": None}
        for h, tau in enumerate(learned.detach().cpu())
        for quantity, value in (("temperature_start", head.config["temperature"]), ("temperature", tau))
    ]


@torch.inference_mode()
def attended(
    head: LearnedHead, space: EmbeddingSpace, part: int, k: int, device: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the rows of a part: entropy of the weights over log k, mass of the null neighbours, and whether the head is
    wrong, (N,) each.
    """
    rows, parts = space.embeddings.rows(part), []
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        probs, weights = head(space.around(batch, k, head.needs).to(device))
        null = (1 - weights.double().sum(1)).clamp(0, 1)
        parts.append((null.cpu().numpy(), probs.argmax(1).cpu().numpy() != space.embeddings.y[batch]))
    null, wrong = (np.concatenate(part) for part in zip(*parts, strict=True))
    return weight_entropy(head, [space], part, k, device), null, wrong


def entropies(entropy: np.ndarray, null: np.ndarray, wrong: np.ndarray, confidence: float) -> tuple[Table, Table]:
    """How spread out the weights are, and how that goes with being wrong.

    Args:
        entropy, null, wrong: of `attended`.

    Returns:
        Rows of `COLUMNS`: the means of entropy and null_mass, and the `auc` of both for wrong rows, entropy_auc and
        null_mass_auc; and rows of `ENTROPY_COLUMNS`: tenths of the rows by entropy, Wilson's interval of their error.
    """
    half = norm.ppf((1 + confidence) / 2) / np.sqrt(len(entropy))
    found: Table = []
    for name, of in (("entropy", entropy), ("null_mass", null)):
        mean, reach = float(of.mean()), half * float(of.std())
        ends = {"low": max(0.0, mean - reach), "high": min(1.0, mean + reach)}
        found.append({"quantity": name, "item": "test rows", "value": mean, **ends})
    for name, of in (("entropy_auc", entropy), ("null_mass_auc", null)):
        value, low, high = auc(of, wrong, confidence)
        found.append({"quantity": name, "item": "test rows", "value": value, "low": low, "high": high})
    deciles: Table = []
    for d, rows in enumerate(np.array_split(np.argsort(entropy, kind="stable"), 10)):
        if not len(rows):
            continue
        of, ends = entropy[rows], metrics.wilson(wrong[rows], confidence)
        row = {"decile": d + 1, "rows": len(rows), "lowest": of.min(), "highest": of.max(), "entropy": of.mean()}
        row |= {"null_mass": null[rows].mean(), "error": wrong[rows].mean(), "low": ends[0], "high": ends[1]}
        deciles.append(row)
    return found, deciles


def against_root(
    swept: pd.DataFrame, answers: Predictions, n: int, bins: int, resamples: int, confidence: float, seed: int
) -> Table:
    """√n against the best of the other k by the NLL on val, for each method.

    Args:
        swept: rows of k, method, metric, validation.
        answers: of the test rows, named `<method>@<k>`.
        n: bank rows.

    Returns:
        Rows of `COLUMNS`: sqrt_n (item bank), largest_k (item swept), and best_k (items are methods); and where √n was
        swept, best_other_k, nll_best_other_k, nll_sqrt_n and sqrt_n_less_best_other, the difference in NLL on test
        with its paired interval.
    """
    near, ranked = root(n), swept[swept["metric"] == "nll"].sort_values(["validation", "k"])
    ks = {m: ranked.loc[ranked["method"] == m, "k"].tolist() for m in KNN if (ranked["method"] == m).any()}
    rows = [("sqrt_n", "bank", float(near), None, None), ("largest_k", "swept", float(swept["k"].max()), None, None)]
    rows += [("best_k", m, float(of[0]), None, None) for m, of in ks.items()]
    known = {m: next(k for k in of if k != near) for m, of in ks.items() if near in of and len(of) > 1}
    rows += [("best_other_k", m, float(k), None, None) for m, k in known.items()]
    pairs = [(at(m, near), at(m, k)) for m, k in known.items()]
    intervals, paired = intervals_and_tests(
        answers, pairs, bins, resamples, confidence, seed, ("accuracy", "nll", "ece")
    )
    nll = {row["method"]: row for row in intervals if row["metric"] == "nll"}
    for m, k in known.items():
        for quantity, name in (("nll_best_other_k", at(m, k)), ("nll_sqrt_n", at(m, near))):
            rows.append((quantity, m, *(nll[name][key] for key in ("value", "low", "high"))))
    for row in paired:
        if row["metric"] == "nll":
            difference = (row[key] for key in ("difference", "low", "high"))
            rows.append(("sqrt_n_less_best_other", parted(row["method"])[0], *difference))
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

"""Check predicted scaling (norms, √n, error against k, distances, temperatures, entropy) on stored neighbours.

The predictions are those of Haris (2024, "kNN Attention Demystified").
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm, rankdata

from attnknn.core.artifacts import BANK, TEST, Predictions
from attnknn.evaluation import metrics
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests
from attnknn.experiments.ensemble import weight_entropy
from attnknn.experiments.k_sweep import KNN, root
from attnknn.heads.registry import LearnedHead
from attnknn.heads.tabr import TabR
from attnknn.neighbours.space import EmbeddingSpace

COLUMNS = {
    "theory": ("quantity", "item", "value", "low", "high"),
    "theory_fit": ("method", "k", "error", "fitted", "low", "high"),
}
EXPONENTS = (0.1, 4.0)  # of `fit_curve`; below, the curve approaches a logarithm; above, all but k = 1 are equal
FEWEST_KS = 4  # the parameters of the curve plus one
_BATCH = 256
_CONSTANT = 1e-20  # sum of squares of a curve that is constant up to rounding
_ROUNDING = 1e-6  # error of squared distances of float32 unit vectors


def _row(quantity: str, item: str, value: float, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    return dict(zip(COLUMNS["theory"], (quantity, item, float(value), low, high), strict=True))


def fit_curve(ks: Sequence[int], errors: np.ndarray) -> np.ndarray:
    """Fit a + b·k^(−c) to R curves by least squares.

    a and b have a closed form for each c, which is searched on a grid of 400 between `EXPONENTS` (variable projection,
    Golub & Pereyra 1973). A constant curve has b = 0 and the lowest c.

    Args:
        ks: (K,).
        errors: (R, K).

    Returns:
        (R, 4): a, b, c, and R² (1 for a constant curve).
    """
    errors = np.asarray(errors, np.float64)
    grid = np.geomspace(*EXPONENTS, 400)
    x = np.asarray(ks, np.float64) ** -grid[:, None]  # (G, K)
    x_mean, y_mean = x.mean(1), errors.mean(1)
    x, y = x - x_mean[:, None], errors - y_mean[:, None]
    slope, total = y @ x.T / (x**2).sum(1), (y**2).sum(1)  # (R, G), (R,)
    residual = total[:, None] - slope**2 * (x**2).sum(1)
    varies, rows = total > _CONSTANT, np.arange(len(errors))
    best = np.where(varies, residual.argmin(1), 0)
    b = np.where(varies, slope[rows, best], 0)
    r2 = np.where(varies, 1 - residual[rows, best] / np.where(varies, total, 1), 1)
    return np.stack([y_mean - b * x_mean[best], b, grid[best], r2], 1)


def error_curves(predictions: Predictions, scoring: Mapping[str, Any], seed: int) -> tuple[Table, Table]:
    """Error of each method against k, and a + b·k^(−c) fitted to it.

    The intervals of a, b, c are from curves fitted to bootstrap resamples of the test rows, the same at every k.

    Args:
        predictions: of the test rows, by methods named `<method>@<k>`, at least `FEWEST_KS` of each.
        scoring: bins, resamples, confidence.

    Returns:
        Rows of the table `theory` (quantities fit_a, fit_b, fit_c, fit_r2; items are methods), and of the table
        `theory_fit` (low and high are Wilson's interval of the error). Both are empty with fewer k.
    """
    fits: Table = []
    points: Table = []
    for method in KNN:
        parsed = map(Method.parse, predictions.methods)
        index = {m.k: i for i, m in enumerate(parsed) if m.k and m == Method(method, k=m.k)}
        ks = sorted(index)
        if len(ks) < FEWEST_KS:
            continue
        probs = np.asarray(predictions.probs)[[index[k] for k in ks]]
        hits = probs.argmax(2) == predictions.y  # (K, N)
        errors = 1 - hits.mean(1)
        a, b, c, r2 = fit_curve(ks, errors[None])[0]
        bins, resamples, confidence = (scoring[name] for name in ("bins", "resamples", "confidence"))
        accuracy = metrics.bootstrap(probs, predictions.y, bins, resamples, seed, ("accuracy",))[:, :, 0]  # (K, R)
        curves = fit_curve(ks, 1 - accuracy.T)
        for i, (name, value) in enumerate((("fit_a", a), ("fit_b", b), ("fit_c", c))):
            fits.append(_row(name, method, value, *metrics.interval(curves[:, i], confidence)))
        fits.append(_row("fit_r2", method, r2))
        for k, error, hit in zip(ks, errors, hits, strict=True):
            values = (method, k, error, float(a + b * k**-c), *metrics.wilson(~hit, confidence))
            points.append(dict(zip(COLUMNS["theory_fit"], values, strict=True)))
    return fits, points


def auc(scores: np.ndarray, wrong: np.ndarray, confidence: float) -> tuple[float, float | None, float | None]:
    """AUC of scores (N,) for wrong rows, bool (N,), ties counted half, with its interval (DeLong et al. 1988).

    The interval is normal on the logit scale, so it stays within [0, 1].

    Returns:
        value, low, high. The value is NaN without wrong or right rows; low and high are None with fewer than two of
        either, or at an AUC of 0 or 1.
    """
    m, n = int(wrong.sum()), int((~wrong).sum())
    if not m or not n:
        return float("nan"), None, None
    ranks = rankdata(np.concatenate([scores[wrong], scores[~wrong]]))
    above = (ranks[:m] - rankdata(scores[wrong])) / n  # (m,) share of right rows that each wrong one is above
    below = 1 - (ranks[m:] - rankdata(scores[~wrong])) / m  # (n,) share of wrong rows that each right one is below
    value = float(above.mean())
    if min(m, n) < 2 or not 0 < value < 1:
        return value, None, None
    deviation = float(np.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)) / (value * (1 - value))
    ends = np.log(value / (1 - value)) + np.array([-1, 1]) * norm.ppf((1 + confidence) / 2) * deviation
    low, high = 1 / (1 + np.exp(-ends))
    return value, float(low), float(high)


def norms(z: np.ndarray) -> Table:
    """Minimum, mean and maximum norm of embeddings (N, D)."""
    lengths = np.linalg.norm(np.asarray(z, np.float64), axis=1)
    return [_row("norm", item, getattr(lengths, item)()) for item in ("min", "mean", "max")]


def equivalence(space: EmbeddingSpace, rows: np.ndarray, k: int) -> Table:
    """Check that −‖q − k‖² and q·k order a query's k neighbours alike: on unit vectors, −‖q − k‖² = 2 q·k − 2.

    Neighbours whose similarities differ by rounding only may swap.

    Returns:
        Rows of the table `theory`: same_order, the share of the queries; and largest_gap,
        the largest |−‖q − k‖² − (2 q·k − 2)|.
    """
    same, gap = 0, 0.0
    for start in range(0, len(rows), _BATCH):
        batch = space.around(rows[start : start + _BATCH], k, ("query", "keys"))
        present = torch.isfinite(batch.sims)
        query, keys = batch.require("query").double(), batch.require("keys").double()
        l2 = -(query[:, None] - keys).square().sum(2)  # (B, K)
        ip = 2 * (keys @ query[:, :, None]).squeeze(2) - 2
        gap = max(gap, float((l2 - ip).abs()[present].max()))
        order = l2.masked_fill(~present, -torch.inf).argsort(dim=1, descending=True, stable=True)
        # Missing neighbours come last in both orders.
        steps = ip.masked_fill(~present, -1e9).gather(1, order).diff(dim=1)
        same += int((steps <= _ROUNDING).all(1).sum())
    return [_row("same_order", "test rows", same / len(rows)), _row("largest_gap", "test rows", gap)]


def temperatures(head: LearnedHead) -> Table:
    """Initial and learned τ of each attention head, in units of the similarities."""
    learned = head.log_temperature.exp()[None] if isinstance(head, TabR) else head.temperatures()
    return [
        _row(quantity, f"head {h}", float(value))
        for h, tau in enumerate(learned.detach().cpu())
        for quantity, value in (("temperature_start", head.config["temperature"]), ("temperature", tau))
    ]


@torch.inference_mode()
def weight_statistics(
    head: LearnedHead, space: EmbeddingSpace, part: int, k: int, device: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entropy of the weights over log k, mass of the null neighbours, and errors of the rows of a part, (N,) each."""
    rows, null, wrong = space.embeddings.rows(part), [], []
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        probs, weights = head(space.around(batch, k, head.needs).to(device))
        null.append((1 - weights.double().sum(1)).clamp(0, 1).cpu().numpy())
        wrong.append(probs.argmax(1).cpu().numpy() != space.embeddings.y[batch])
    return weight_entropy(head, [space], part, k, device), np.concatenate(null), np.concatenate(wrong)


def entropies(entropy: np.ndarray, null: np.ndarray, wrong: np.ndarray, confidence: float) -> Table:
    """Rows of the table `theory`: means of entropy and null_mass, and the `auc` of both for wrong rows.

    Args:
        entropy, null, wrong: of `weight_statistics`.
    """
    half = norm.ppf((1 + confidence) / 2) / np.sqrt(len(entropy))
    by_name = {"entropy": entropy, "null_mass": null}
    table: Table = []
    for name, values in by_name.items():
        mean, margin = float(values.mean()), half * float(values.std())
        table.append(_row(name, "test rows", mean, max(0.0, mean - margin), min(1.0, mean + margin)))
    return table + [_row(f"{name}_auc", "test rows", *auc(v, wrong, confidence)) for name, v in by_name.items()]


def against_root(swept: pd.DataFrame, predictions: Predictions, n: int, scoring: Mapping[str, Any], seed: int) -> Table:
    """Compare k = √n with the other k of lowest NLL on val, for each method.

    Args:
        swept: rows of k, method, metric, validation.
        predictions: of the test rows, by methods named `<method>@<k>`.
        n: bank rows.
        scoring: bins, resamples, confidence.

    Returns:
        Rows of the table `theory`: sqrt_n (item bank), largest_k (item swept), and best_k (items are methods); if √n
        was swept, also best_other_k, nll_best_other_k, nll_sqrt_n and sqrt_n_less_best_other, the difference in NLL on
        test with its paired interval.
    """
    sqrt_n, ranked = root(n), swept[swept["metric"] == "nll"].sort_values(["validation", "k"])
    ks = {m: ranked.loc[ranked["method"] == m, "k"].tolist() for m in KNN if (ranked["method"] == m).any()}
    table = [_row("sqrt_n", "bank", sqrt_n), _row("largest_k", "swept", swept["k"].max())]
    table += [_row("best_k", m, by_nll[0]) for m, by_nll in ks.items()]
    other = {m: next(k for k in by_nll if k != sqrt_n) for m, by_nll in ks.items() if {sqrt_n} < set(by_nll)}
    table += [_row("best_other_k", m, k) for m, k in other.items()]
    pairs = [(str(Method(m, k=sqrt_n)), str(Method(m, k=k))) for m, k in other.items()]
    intervals, paired = intervals_and_tests(predictions, pairs, **scoring, seed=seed, metric_names=TESTED)
    nll = {row["method"]: row for row in intervals if row["metric"] == "nll"}
    for m, (sqrt_n_name, other_name) in zip(other, pairs, strict=True):
        for quantity, name in (("nll_best_other_k", other_name), ("nll_sqrt_n", sqrt_n_name)):
            table.append(_row(quantity, m, *(nll[name][key] for key in ("value", "low", "high"))))
    for row in [row for row in paired if row["metric"] == "nll"]:
        difference = (row[key] for key in ("difference", "low", "high"))
        table.append(_row("sqrt_n_less_best_other", Method.parse(row["method"]).base, *difference))
    return table


def theory_tables(
    space: EmbeddingSpace,
    head: LearnedHead,
    by_k: Predictions,
    swept: pd.DataFrame,
    k: int,
    scoring: Mapping[str, Any],
    seed: int,
    device: str,
) -> tuple[dict[str, dict[str, float]], dict[str, Table]]:
    """All checks: values by quantity and item, and the tables of `COLUMNS`.

    Args:
        by_k, swept: predictions and table of the k sweep.
        scoring: bins, resamples, confidence.
    """
    e = space.embeddings
    fits, points = error_curves(by_k, scoring, seed)
    table = [
        *norms(e.z),
        *against_root(swept, by_k, len(e.rows(BANK)), scoring, seed),
        *fits,
        *equivalence(space, e.rows(TEST), k),
        *temperatures(head),
        *entropies(*weight_statistics(head, space, TEST, k, device), scoring["confidence"]),
    ]
    means: dict[str, dict[str, float]] = {}
    for row in table:
        if not math.isnan(row["value"]):  # AUC without wrong rows
            means.setdefault(row["quantity"], {})[row["item"].replace(" ", "_")] = row["value"]
    return means, {"theory": table, "theory_fit": points}

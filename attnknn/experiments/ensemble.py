"""Combine the predictions of every kNN method at several k: mean, k by weight entropy, learned stopping."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch

from attnknn.core.artifacts import FIT, TEST, VAL, PartProbs
from attnknn.evaluation.evaluate import calibrated, predict_parts, tuned_baselines
from attnknn.evaluation.method import Method
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests
from attnknn.experiments.learned_stopping import fit_stopping, mixture
from attnknn.heads.attention import Head
from attnknn.heads.baselines import Distance, Uniform, choices_of_k, tune_distance, tune_uniform
from attnknn.neighbours.space import EmbeddingSpace, classes_of, part_neighbours, part_rows

SINGLE = "single"
VARIANTS = (SINGLE, "k_ensemble", "adaptive_k", "stopping")
METHODS = ("uniform", "distance", "attention")
CALIBRATION = "vector"
THRESHOLDS = (0.5, 1.0)  # of the historic rule
_BATCH = 1024


def historic_choices(k: int) -> tuple[int, int, int]:
    """The k that the historic rule selects from: max(5, .3·k), max(10, .6·k) and k, none above k."""
    return min(k, max(5, int(0.3 * k))), min(k, max(10, int(0.6 * k))), k


def historic_step(entropy: np.ndarray) -> np.ndarray:
    """Index into `historic_choices`, int64 (N,), from the weights' entropy over log k (N,).

    0 below .5, 1 below 1, else 2. Entropy over log k is at most 1, so only equal weights give 2.
    """
    return np.searchsorted(THRESHOLDS, entropy, side="right")


@torch.inference_mode()
def weight_entropy(head: Head, spaces: Sequence[EmbeddingSpace], part: int, k: int, device: str = "cpu") -> np.ndarray:
    """Entropy of each row's weights of its k neighbours, over log k: float64 (M,), in the order of `part_rows`.

        H = −Σᵢ wᵢ·log wᵢ / log k,   w scaled to sum to 1 without the null neighbours

    Equal weights give exactly 1.
    """
    batches = []
    for space, rows in part_rows(spaces, part):
        for start in range(0, len(rows), _BATCH):
            batch = space.around(rows[start : start + _BATCH], k, head.needs).to(device)
            weights = head(batch)[1].double().clamp(min=torch.finfo(torch.float64).tiny)
            share = weights / weights.sum(1, keepdim=True)
            batches.append(torch.special.entr(share).sum(1).cpu().numpy() / np.log(max(k, 2)))
    entropy = np.concatenate(batches)
    return np.where(entropy > 1 - 1e-6, 1.0, entropy)  # rounding


def variants(
    spaces: Sequence[EmbeddingSpace],
    attention: Head,
    k_eval: int,
    ensemble_ks: Sequence[int],
    grids: Mapping[str, Sequence[Any]],
    device: str = "cpu",
) -> tuple[PartProbs, dict[str, float]]:
    """Predict with every kNN method in every variant, named `<variant>:<method>`.

    The baselines have the ε and τ of lowest NLL on val at each k; attention is the same fitted head at every k.

    single: as in `evaluate.compare`; the baselines' k is tuned, attention's is k_eval.
    k_ensemble: mean of the probabilities at each k of the list.
    adaptive_k: the historic rule (`historic_step`) by the method's own weights of the k_eval nearest.
    stopping: learned (`fit_stopping`) over the list, k_eval and the single k.

    Args:
        ensemble_ks: the list; those above k_eval are left out, and k_eval is used where none is left.
        grids: ks, temperatures, priors, ridges of `evaluate.compare`; ridges are those of the stopping too.

    Returns:
        The probabilities of the fit, val and test rows by name, and the mean k of the test rows by name.
    """
    listed = sorted(k for k in ensemble_ks if k <= k_eval) or [k_eval]
    temperatures, priors = grids["temperatures"], grids["priors"]
    _, best = tuned_baselines(spaces, choices_of_k(grids["ks"], k_eval), temperatures, priors)
    single = {"uniform": int(best["uniform"]["k"]), "distance": int(best["distance"]["k"]), "attention": k_eval}
    stopping_ks = {name: sorted({*listed, k_eval, k}) for name, k in single.items()}
    historic_ks = historic_choices(k_eval)
    all_ks = {name: sorted({*own_ks, *historic_ks}) for name, own_ks in stopping_ks.items()}
    on_val = *part_neighbours(spaces, VAL, k_eval), classes_of(spaces, VAL), spaces[0].shares
    heads: dict[str, dict[int, Any]] = {
        "uniform": {k: Uniform(**tune_uniform(*on_val, [k], priors)) for k in all_ks["uniform"]},  # type: ignore[arg-type]
        "distance": {
            k: Distance(**tune_distance(*on_val, [k], temperatures, priors))  # type: ignore[arg-type]
            for k in all_ks["distance"]
        },
        "attention": dict.fromkeys(all_ks["attention"], attention),
    }
    y_fit, y_val = classes_of(spaces, FIT), classes_of(spaces, VAL)
    parts = ((spaces, FIT), (spaces, VAL), (spaces[:1], TEST))
    results: dict[tuple[str, str], tuple[Sequence[np.ndarray], float]] = {}
    for name, head_by_k in heads.items():
        by_k = {k: predict_parts(spaces, {name: head}, k, device)[name] for k, head in head_by_k.items()}
        results[SINGLE, name] = by_k[single[name]], float(single[name])
        means = [np.mean([by_k[k][i] for k in listed], 0) for i in range(3)]
        results["k_ensemble", name] = means, float(np.mean(listed))
        steps = [historic_step(weight_entropy(head_by_k[k_eval], *part, k_eval, device)) for part in parts]
        adaptive = [np.stack([by_k[k][i] for k in historic_ks])[s, np.arange(len(s))] for i, s in enumerate(steps)]
        results["adaptive_k", name] = adaptive, float(np.take(historic_ks, steps[2]).mean())
        by_part = [np.stack([by_k[k][i] for k in stopping_ks[name]], 1) for i in range(3)]  # (M, S, C)
        stopping = fit_stopping(by_part[0], y_fit, by_part[1], y_val, stopping_ks[name], single[name], grids["ridges"])
        halting_probs = [stopping(p) for p in by_part]
        stopped = [mixture(pi, p) for pi, p in zip(halting_probs, by_part, strict=True)]
        results["stopping", name] = stopped, float((halting_probs[2] @ np.array(stopping_ks[name])).mean())
    names = {key: str(Method(key[1], variant=key[0])) for key in results}
    probs: PartProbs = {names[key]: (fit, val, test) for key, ((fit, val, test), _) in results.items()}
    return probs, {names[key]: k for key, (_, k) in results.items()}


def compare_variants(
    spaces: Sequence[EmbeddingSpace],
    attention: Head,
    k_eval: int,
    ensemble_ks: Sequence[int],
    grids: Mapping[str, Sequence[Any]],
    scoring: Mapping[str, Any],
    seed: int,
    device: str = "cpu",
) -> tuple[dict[str, dict[str, dict[str, float]]], Table, Table]:
    """Compare every variant of every kNN method, with and without vector scaling, with the same method's single k.

    Args:
        grids: ks, temperatures, priors, ridges of `evaluate.compare`.
        scoring: bins, resamples, confidence.

    Returns:
        {variant: {uncalibrated method: {accuracy, nll, ece, mean_k}}}; rows of variant, method, metric, value, low,
        high, with mean_k among the metrics; and rows of variant, method, baseline (a variant), metric, difference, low,
        high, errors, p, test.
    """
    probs, mean_k = variants(spaces, attention, k_eval, ensemble_ks, grids, device)
    test, _, _ = calibrated(probs, spaces, grids["ridges"], [CALIBRATION])
    methods = [Method(base, kind) for base in METHODS for kind in ("", CALIBRATION)]
    pairs = [(f"{v}:{method}", f"{SINGLE}:{method}") for v in VARIANTS if v != SINGLE for method in methods]
    scores, paired = intervals_and_tests(test, pairs, **scoring, seed=seed, metric_names=TESTED)
    for variant, method in product(VARIANTS, methods):
        row = {"method": f"{variant}:{method}", "metric": "mean_k", "value": mean_k[f"{variant}:{method.base}"]}
        scores.append({**row, "low": None, "high": None})
    means: dict[str, dict[str, dict[str, float]]] = {variant: {} for variant in VARIANTS}
    for table in (scores, paired):
        for i, row in enumerate(table):
            method = Method.parse(row["method"])
            names = {"method": method.name} | ({"baseline": SINGLE} if "baseline" in row else {})
            table[i] = {"variant": method.variant, **row} | names
            if table is scores and not method.calibration:
                means[method.variant].setdefault(method.name, {})[row["metric"]] = row["value"]
    return means, scores, paired

"""Several answers made one: over k, and over a k of each query's own; the same for every kNN method."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attnknn.core.artifacts import FIT, TEST, VAL
from attnknn.core.errors import require
from attnknn.evaluation.evaluate import Answers, answers, calibrated, tuned_baselines
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests
from attnknn.experiments.learned_stopping import fit_stopping, mixed
from attnknn.heads.attention import Distance, Head, Uniform
from attnknn.heads.baselines import choices_of_k, tune_distance, tune_uniform
from attnknn.neighbours.space import EmbeddingSpace, classes_of, pooled, voters

SINGLE = "single"
VARIANTS = (SINGLE, "k_ensemble", "adaptive_k", "stopping")
METHODS = ("uniform", "distance", "attention")
CALIBRATION = "vector"
THRESHOLDS = (0.5, 1.0)  # of the historic rule
_BATCH = 1024


def historic_choices(k: int) -> tuple[int, int, int]:
    """What the historic rule chooses among: max(5, .3·k), max(10, .6·k) and k, none above k."""
    return min(k, max(5, int(0.3 * k))), min(k, max(10, int(0.6 * k))), k


def historic_step(entropy: np.ndarray) -> np.ndarray:
    """Which of `historic_choices` the historic rule takes, int64 (N,), by the weights' entropy over log k, (N,).

    Below .5 the first, below 1 the second, else the third. Entropy over log k is at most 1, so the third is left to
    weights that are all alike; the rule is kept as it was.
    """
    return np.searchsorted(THRESHOLDS, entropy, side="right")


@torch.inference_mode()
def weight_entropy(head: Head, spaces: Sequence[EmbeddingSpace], part: int, k: int, device: str = "cpu") -> np.ndarray:
    """Entropy of each row's weights of its k neighbours, over log k: float64 (M,), in the order of `pooled`.

        H = −Σᵢ wᵢ·log wᵢ / log k,   w made to sum to 1 without the null neighbours

    1 is exactly 1: what rounding takes from weights that are all alike is put back.
    """
    found = []
    for space, rows in pooled(spaces, part):
        for start in range(0, len(rows), _BATCH):
            near = space.around(rows[start : start + _BATCH], k, head.needs).to(device)
            weights = head(near)[1].double().clamp(min=torch.finfo(torch.float64).tiny)
            share = weights / weights.sum(1, keepdim=True)
            found.append(torch.special.entr(share).sum(1).cpu().numpy() / np.log(max(k, 2)))
    entropy = np.concatenate(found)
    return np.where(entropy > 1 - 1e-6, 1.0, entropy)


def heads_at(
    spaces: Sequence[EmbeddingSpace],
    attention: Head,
    k_eval: int,
    ks: Mapping[str, Sequence[int]],
    temperatures: Sequence[float],
    priors: Sequence[float],
) -> dict[str, dict[int, Head]]:
    """Heads by method and k: `uniform` and `distance` with the ε and τ of lowest NLL on val at that k.

    Attention is the one fitted head at every k: it is given the k nearest, and never fitted again.
    """
    on_val = *voters(spaces, VAL, k_eval), classes_of(spaces, VAL), spaces[0].shares
    uniform = {k: Uniform(**tune_uniform(*on_val, [k], priors)) for k in ks["uniform"]}  # type: ignore[arg-type]
    distance = {k: Distance(**tune_distance(*on_val, [k], temperatures, priors)) for k in ks["distance"]}  # type: ignore[arg-type]
    return {"uniform": uniform, "distance": distance, "attention": dict.fromkeys(ks["attention"], attention)}


def variants(
    spaces: Sequence[EmbeddingSpace],
    attention: Head,
    k_eval: int,
    ensemble_ks: Sequence[int],
    ks: Sequence[int],
    temperatures: Sequence[float],
    priors: Sequence[float],
    ridges: Sequence[float],
    device: str = "cpu",
) -> tuple[Answers, dict[str, float]]:
    """Every kNN method in every variant, as `<variant> <method>`, and the mean k of the test rows under each.

    single: what `comparison.compare` answers with; the baselines' k is tuned, attention's is k_eval.
    k_ensemble: mean of the probabilities at each k of the list.
    adaptive_k: the historic rule (`historic_step`) by the method's own weights of the k_eval nearest.
    stopping: learned (`stopping.fit_stopping`) over the list, k_eval and the single k.

    Args:
        ensemble_ks: the list, of which those above k_eval are left out; k_eval where none is left.
        ks, temperatures, priors, ridges: grids of `comparison.compare`; ridges are those of the stopping too.

    Raises:
        InputError: k_eval is above the neighbours stored.
    """
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    require(k_eval <= stored, f"k_eval: {k_eval} is above the {stored} neighbours stored for each row; lower k_eval")
    listed = sorted(k for k in ensemble_ks if k <= k_eval) or [k_eval]
    _, tuned = tuned_baselines(spaces, choices_of_k(ks, k_eval), temperatures, priors)
    single = {"uniform": int(tuned["uniform"]["k"]), "distance": int(tuned["distance"]["k"]), "attention": k_eval}
    steps = {name: sorted({*listed, k_eval, k}) for name, k in single.items()}
    ruled = historic_choices(k_eval)
    needed = {name: sorted({*of, *ruled}) for name, of in steps.items()}
    y_fit, y_val = classes_of(spaces, FIT), classes_of(spaces, VAL)
    asked = ((spaces, FIT), (spaces, VAL), (spaces[:1], TEST))
    made: Answers = {}
    mean_k: dict[str, float] = {}

    def put(variant: str, method: str, probs: Sequence[np.ndarray], k: float) -> None:
        fit, val, test = probs
        made[f"{variant} {method}"], mean_k[f"{variant} {method}"] = (fit, val, test), k

    for name, heads in heads_at(spaces, attention, k_eval, needed, temperatures, priors).items():
        at = {k: answers(spaces, {name: head}, k, device)[name] for k, head in heads.items()}
        put(SINGLE, name, at[single[name]], float(single[name]))
        put("k_ensemble", name, [np.mean([at[k][i] for k in listed], 0) for i in range(3)], float(np.mean(listed)))
        taken = [historic_step(weight_entropy(heads[k_eval], *of, k_eval, device)) for of in asked]
        chosen = [np.stack([at[k][i] for k in ruled])[t, np.arange(len(t))] for i, t in enumerate(taken)]
        put("adaptive_k", name, chosen, float(np.take(ruled, taken[2]).mean()))
        fit, val, test = (np.stack([at[k][i] for k in steps[name]], 1) for i in range(3))  # (M, S, C)
        stop = fit_stopping(fit, y_fit, val, y_val, steps[name], single[name], ridges)
        mean = float((stop.shares(test) @ np.array(stop.ks)).mean())
        put("stopping", name, [mixed(stop.shares(probs), probs) for probs in (fit, val, test)], mean)
    return made, mean_k


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
    """Every variant of every kNN method, bare and with vector scaling, against the same method's single k.

    Args:
        grids: ks, temperatures, priors, ridges of `comparison.compare`.
        scoring: bins, resamples, confidence.

    Returns:
        {variant: {method: {accuracy, nll, ece, mean_k}}}; rows of variant, method, metric, value, low, high, with
        mean_k among the metrics; and rows of variant, method, baseline (a variant), metric, difference, low, high,
        errors, p, test.

    Raises:
        InputError: as for `variants`.
    """
    probs, mean_k = variants(spaces, attention, k_eval, ensemble_ks, **grids, device=device)
    test, _, _ = calibrated(probs, spaces, grids["ridges"], [CALIBRATION])
    methods = [name for base in METHODS for name in (base, f"{base}_{CALIBRATION}")]
    against = [(f"{v} {name}", f"{SINGLE} {name}") for v in VARIANTS if v != SINGLE for name in methods]
    found, paired = intervals_and_tests(test, against, **scoring, seed=seed, wanted=TESTED)
    means: dict[str, dict[str, dict[str, float]]] = {v: {name: {} for name in methods} for v in VARIANTS}
    intervals: Table = []
    for row in found:
        variant, method = row["method"].split()
        means[variant][method][row["metric"]] = row["value"]
        intervals.append({"variant": variant, **row, "method": method})
    for variant, of in means.items():
        for method, scores in of.items():
            scores["mean_k"] = mean_k[f"{variant} {method.removesuffix(f'_{CALIBRATION}')}"]
            row = {"variant": variant, "method": method, "metric": "mean_k", "value": scores["mean_k"]}
            intervals.append({**row, "low": None, "high": None})
    tests: Table = []
    for row in paired:
        variant, method = row["method"].split()
        tests.append({"variant": variant, **row, "method": method, "baseline": row["baseline"].split()[0]})
    return means, intervals, tests

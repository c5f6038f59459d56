"""Every method at each number of neighbours, tuned or fitted anew there; it ends in plain tables."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.artifacts import BANK, TEST, VAL, Predictions
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import Answers, answers, calibrated, tuned_baselines
from attnknn.evaluation.metrics import METRICS
from attnknn.evaluation.paired_tests import BASE, TESTED, Table, intervals_and_tests, scores
from attnknn.heads.attention import Head
from attnknn.heads.fit import fit_head
from attnknn.neighbours.space import EmbeddingSpace, classes_of, pooled

KNN = ("uniform", "distance", "attention")  # the methods that k means something for; each has every calibration too
OURS = "attention"
OPPONENTS = ("uniform", "distance", "prototypes", "linear")
COLUMNS = ("k", "sqrt_n", "method", "metric", "validation", "value", "low", "high")


@dataclass(frozen=True)
class Swept:
    """What a sweep found.

    Attributes:
        table: rows of `COLUMNS`; sqrt_n says whether k is the rounded √n. A method without neighbours stands at every
            k, alike.
        paired: rows of method, k, baseline, baseline_k, metric, difference, low, high, errors, p, test: attention
            against each opponent, each with the k and the calibration, or none, of its lowest NLL on val. Without
            neighbours baseline_k is None.
        best: by method, best_k (lowest NLL on val; only where there are neighbours) and accuracy, nll, ece on test
            there.
        answers: of the test rows, the kNN methods without calibration, as `<method>@<k>`.
    """

    table: Table
    paired: Table
    best: dict[str, dict[str, float]]
    answers: Predictions


def root(bank_rows: int) -> int:
    """√n, rounded: the k of the rule of thumb."""
    return round(math.sqrt(bank_rows))


def swept_ks(ks: Sequence[int], bank_rows: int, stored: int) -> list[int]:
    """Those of ks that are stored, and √n with its half and its double on either side, ascending.

    Where the double, or √n itself, is not stored, the largest k that is stands for it: of a grid that ends at √n no
    one could tell whether √n is best.
    """
    near = root(bank_rows)
    return sorted({k for k in (*ks, max(1, near // 2), near, min(2 * near, stored)) if k <= stored})


def at(method: str, k: int) -> str:
    """The name of a method with k neighbours, calibrated or not."""
    return f"{method}@{k}" if method.partition("_")[0] in KNN else method


def parted(name: str) -> tuple[str, int | None]:
    """(method, k) of what `at` named; k is None where there are no neighbours."""
    method, _, k = name.partition("@")
    return method, int(k) if k else None


def _base(name: str) -> str:
    """The method of a name without its k and its calibration."""
    return parted(name)[0].partition("_")[0]


def _lowest(names: Iterable[str], key: Callable[[str], str], nll: Mapping[str, float]) -> dict[str, str]:
    """By key, the name of lowest NLL among those that share it; the first on a tie."""
    found: dict[str, str] = {}
    for name in names:
        if key(name) not in found or nll[name] < nll[found[key(name)]]:
            found[key(name)] = name
    return found


@dataclass(frozen=True)
class _Answered:
    """Probabilities of the test and of the val rows by the names of `at`, bare and calibrated."""

    test: dict[str, np.ndarray]
    val: dict[str, np.ndarray]


def _calibrated(probs: Answers, spaces: Sequence[EmbeddingSpace], ridges: Sequence[float], k: int) -> _Answered:
    test, val, _ = calibrated(probs, spaces, ridges, KINDS)
    names = [at(method, k) for method in test.methods]
    return _Answered(*(dict(zip(names, of.probs, strict=True)) for of in (test, val)))


def _at_k(
    spaces: Sequence[EmbeddingSpace],
    k: int,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    seed: int,
    device: str,
) -> _Answered:
    """The methods with neighbours, made for k of them."""
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"]}
    heads, _ = tuned_baselines(spaces, [k], **starts)
    heads[OURS] = fit_head(spaces, k_train=k, **fitting, **starts, seed=seed, device=device)[0]
    probs = answers(spaces, heads, k, device)
    return _calibrated({name: probs[name] for name in KNN}, spaces, grids["ridges"], k)


def _predictions(spaces: Sequence[EmbeddingSpace], part: int, found: Mapping[str, np.ndarray]) -> Predictions:
    rows = np.concatenate([rows for _, rows in pooled(spaces, part)]).astype(np.int32)
    classes = spaces[0].embeddings.classes
    return Predictions(rows, classes_of(spaces, part), np.stack(list(found.values())), tuple(found), tuple(classes))


def _some(predictions: Predictions, wanted: Callable[[str], bool]) -> Predictions:
    kept = [m for m, name in enumerate(predictions.methods) if wanted(name)]
    names = tuple(predictions.methods[m] for m in kept)
    return dataclasses.replace(predictions, probs=np.asarray(predictions.probs)[kept], methods=names)


def sweep(
    spaces: Sequence[EmbeddingSpace],
    ks: Sequence[int],
    others: Mapping[str, Head],
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    scoring: Mapping[str, Any],
    seed: int,
    device: str = "cpu",
    progress: Callable[[int], object] | None = None,
    workers: int = 1,
) -> Swept:
    """Tune uniform and distance weighting, and fit attention, at each k alone; compare all of them on the test rows.

    The best k of a method is the one of lowest NLL on val, and so is the calibration with which attention and each
    opponent are tested; the test rows choose nothing. `scorecard.BASE` gets every metric; the other calibrated methods
    get those that are tested, for which a sweep has time.

    Args:
        spaces: as for `comparison.compare`.
        ks: what `swept_ks` gave.
        others: heads that use no neighbours, as the prototypes.
        fitting: keyword arguments of `fit_head` that do not follow from the others.
        grids: temperatures, priors, ridges.
        scoring: bins, resamples, confidence.
        progress: is told each k that is done.
        workers: see `parallel.run_parallel`.
    """
    found = _calibrated(answers(spaces, others, 1, device), spaces, grids["ridges"], 0)
    calls = [partial(_at_k, spaces, k, fitting, grids, seed, device) for k in ks]
    for k, of_k in zip(ks, run_parallel(calls, workers), strict=True):
        found.test.update(of_k.test)
        found.val.update(of_k.val)
        if progress is not None:
            progress(k)
    test, val = _predictions(spaces[:1], TEST, found.test), _predictions(spaces, VAL, found.val)
    on_val = scores(val, scoring["bins"])
    nll = {name: of["nll"] for name, of in on_val.items()}
    best = _lowest(test.methods, lambda name: parted(name)[0], nll)  # the lowest k on a tie
    # A calibration that changes nothing but the last bits is a tie, and bare comes first.
    strongest = _lowest(best.values(), _base, {name: round(of, 6) for name, of in nll.items()})
    bank = len(spaces[0].embeddings.rows(BANK))

    def base(name: str) -> bool:
        return parted(name)[0] in BASE

    rows: Table = []
    for some, wanted in ((_some(test, base), METRICS), (_some(test, lambda name: not base(name)), TESTED)):
        rows += intervals_and_tests(some, (), **scoring, seed=seed, wanted=wanted)[0]
    against = [(strongest[OURS], strongest[name]) for name in OPPONENTS if name in strongest]
    tested = _some(test, lambda name: name in strongest.values())
    paired = intervals_and_tests(tested, against, **scoring, seed=seed, wanted=TESTED)[1]

    table: Table = []
    for row in rows:
        method, k = parted(row["method"])
        measured = {key: row[key] for key in ("value", "low", "high")}
        said = {"method": method, "metric": row["metric"], "validation": on_val[row["method"]][row["metric"]]}
        table += [{"k": i, "sqrt_n": i == root(bank), **said, **measured} for i in ([k] if k else ks)]
    value = {(row["method"], row["metric"]): row["value"] for row in rows}
    tests: Table = []
    for row in paired:
        (method, k), (baseline, baseline_k) = parted(row["method"]), parted(row["baseline"])
        tests.append({**row, "method": method, "k": k, "baseline": baseline, "baseline_k": baseline_k})
    order = ("method", "k", "baseline", "baseline_k")
    tests = [{key: row[key] for key in (*order, *(key for key in row if key not in order))} for row in tests]
    chosen: dict[str, dict[str, float]] = {}
    for method in (name for name in BASE if name in best):
        k = parted(best[method])[1]
        chosen[method] = {"best_k": k} if k else {}
        chosen[method] |= {m: value[best[method], m] for m in TESTED}
    return Swept(table, tests, chosen, _some(test, lambda name: name.partition("@")[0] in KNN))

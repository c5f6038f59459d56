"""What the historic study concluded, held against the numbers at hand: supported, contradicted or undecided.

Every verdict is computed from the tables of a dataset's runs, by a rule that its function states; a conclusion whose
table is not there is left out. What counts as a gain is said in gains.py; p is not adjusted for the number of
conclusions. The data and encoder are not the study's, so a verdict is on what was concluded in general, and never says
whether their numbers were right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from attnknn.plots import METRICS, method_name
from attnknn.report.claims import OURS
from attnknn.report.gains import Finding, gained, mean_and_ends, nothing_gained, pair_of, scores_of
from attnknn.report.historic import METHODS
from attnknn.report.results import Run, joined
from attnknn.report.tables import fixed

KEPT = 0.98  # share of the accuracy that is left where the study calls it robust: its own at 30 % wrong labels
LARGEST = 50  # k of the study's sweep
FLAT = 0.01  # accuracy between the best and the worst k where k hardly matters; the study's own was .001 to .024
GAP = 0.05  # accuracy between kNN and network: the lower end of the study's 5–9 points
EXPONENTS = (0.11, 3.9)  # just inside the bounds of the search for c
OVERHEAD = 1.0  # milliseconds a query


@dataclass(frozen=True)
class Conclusion:
    """One conclusion of the study on one dataset.

    Attributes:
        name: in a few words.
        words, source: the study's words, shortened, and where they stand.
        verdict, numbers: what our numbers say of it, and which.
    """

    name: str
    words: str
    source: str
    verdict: Finding
    numbers: str


def _outperforms(runs: Sequence[Run], alpha: float, metric: str) -> tuple[Finding, str] | None:
    """Supported where attention is better than uniform and distance weighting both; see `gained`."""
    found = {
        name: pair_of(runs, "paired", metric, alpha, method=OURS, baseline=name) for name in ("uniform", "distance")
    }
    pairs = {name: pair for name, pair in found.items() if pair is not None}
    if len(pairs) < len(found):
        return None
    parts = [f"against {method_name(name)} {pair}" for name, pair in pairs.items()]
    return gained(pairs.values()), f"{METRICS[metric]} of attention {', '.join(parts)}"


def _nothing_alone(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """Attention against distance weighting in accuracy and NLL; and what is left of it beyond vector scaling."""
    asked = {m: pair_of(runs, "paired", m, alpha, method=OURS, baseline="distance") for m in ("accuracy", "nll")}
    pairs = {metric: pair for metric, pair in asked.items() if pair is not None}
    if not pairs:
        return None
    text = ", ".join(f"{METRICS[metric]} {pair}" for metric, pair in pairs.items())
    left = pair_of(runs, "paired", "nll", alpha, method=OURS, baseline="distance_vector")
    beyond = f"; against the same with vector scaling NLL {left}" if left else ""
    return nothing_gained(pairs.values()), f"against distance weighting {text}{beyond}"


def _views(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """Attention's ECE with all views against one, see `gained`; and what the same views give the other two."""
    paired = joined(runs, "tta_paired")
    if paired.empty:
        return None
    alone = {"views": int(paired["views"].max()), "baseline_views": 1}
    named = ((name, pair_of(runs, "tta_paired", "ece", alpha, method=name, baseline=name, **alone)) for name in METHODS)
    pairs = {name: pair for name, pair in named if pair is not None}
    if OURS not in pairs:
        return None
    parts = ", ".join(f"{method_name(name)} {pair}" for name, pair in pairs.items())
    return gained([pairs[OURS]]), f"ECE with {alone['views']} views less with one: {parts}"


def _ensemble(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """The k-ensemble of attention against its single k, in accuracy and NLL."""
    of = {"variant": "k_ensemble", "method": OURS, "baseline": "single"}
    named = ((metric, pair_of(runs, "ensemble_paired", metric, alpha, **of)) for metric in ("accuracy", "nll"))
    pairs = {metric: pair for metric, pair in named if pair is not None}
    if not pairs:
        return None
    return nothing_gained(pairs.values()), ", ".join(f"{METRICS[metric]} {pair}" for metric, pair in pairs.items())


def _any_k(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """Supported where no method's accuracy moves by `FLAT` over k, contradicted where best and worst k are apart."""
    table = joined(runs, "k_sweep")
    ks = [] if table.empty else sorted(k for k in table["k"].unique() if k <= LARGEST)
    at = {k: scores_of(runs, "k_sweep", "accuracy", k=k) for k in ks}
    spreads, apart, parts = [], [], []
    for name in METHODS:
        of = {k: scores[name] for k, scores in at.items() if name in scores}
        if not of:
            continue
        ranked = sorted(of, key=lambda k, of=of: of[k][0])
        worst, best = ranked[0], ranked[-1]
        spreads.append(of[best][0] - of[worst][0])
        apart.append(spreads[-1] >= FLAT and of[best][1] > of[worst][2])
        parts.append(f"{method_name(name)} {fixed(spreads[-1], 4)} (best at k {best}, worst at {worst})")
    if not spreads:
        return None
    flat = all(spread < FLAT for spread in spreads)
    kind: Finding = "supported" if flat else "contradicted" if any(apart) else "undecided"
    return kind, f"accuracy between the best and the worst k: {', '.join(parts)}"


def _robust(runs: Sequence[Run], alpha: float, table: str, condition: str) -> tuple[Finding, str] | None:
    """Supported where every method keeps `KEPT` of its accuracy by its whole interval, contradicted where one loses."""
    clean, worse = scores_of(runs, "intervals", "accuracy"), scores_of(runs, table, "accuracy", condition=condition)
    names = [name for name in METHODS if name in clean and name in worse]
    if not names:
        return None
    kept = {name: tuple(value / clean[name][0] for value in worse[name]) for name in names}
    sure, lost = all(of[1] >= KEPT for of in kept.values()), any(of[2] < KEPT for of in kept.values())
    nll, bare = scores_of(runs, table, "nll", condition=condition), scores_of(runs, "intervals", "nll")
    moves = {n: f", NLL {fixed(bare[n][0], 3)} → {fixed(nll[n][0], 3)}" for n in names if n in nll and n in bare}
    parts = [f"{method_name(n)} {fixed(100 * kept[n][0], 1)} %{moves.get(n, '')}" for n in names]
    kind: Finding = "supported" if sure else "contradicted" if lost else "undecided"
    return kind, f"accuracy kept: {'; '.join(parts)}"


def _adds_robustness(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """The reverse of `nothing_gained` by attention over distance weighting under the same 30 % wrong labels."""
    of = {"method": OURS, "baseline": "distance", "condition": "noise 0.3"}
    named = ((metric, pair_of(runs, "noise_paired", metric, alpha, **of)) for metric in ("accuracy", "nll"))
    pairs = {metric: pair for metric, pair in named if pair is not None}
    if not pairs:
        return None
    opposite: dict[Finding, Finding] = {"supported": "contradicted", "contradicted": "supported"}
    kind = nothing_gained(pairs.values())
    text = ", ".join(f"{METRICS[metric]} {pair}" for metric, pair in pairs.items())
    return opposite.get(kind, kind), f"against distance weighting {text}"


def _gap(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """Supported where the network is ahead by `GAP` by its whole interval, contradicted where it cannot be."""
    for other in ("cnn", "linear"):
        pair = pair_of(runs, "paired", "accuracy", alpha, method=OURS, baseline=other)
        if pair is not None:
            low, high = -pair.high, -pair.low
            kind: Finding = "supported" if low >= GAP else "contradicted" if high < GAP else "undecided"
            kind = kind if pair.enough else "undecided"
            gap = (
                f"{fixed(-100 * pair.difference, 2, True)} ({fixed(100 * low, 2, True)} … {fixed(100 * high, 2, True)})"
            )
            return kind, f"{method_name(other)} less attention: {gap} points"
    return None


def _inverse_k(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """Of error = a + b·k^(−c): supported where b > 0 and c holds 1 for every method, contradicted where one cannot be.

    c is searched between the ends of `EXPONENTS`; an interval that reaches one says nothing.
    """
    rows = joined(runs, "theory")
    kinds, parts = [], []
    for name in METHODS:
        mine = rows if rows.empty else rows[rows["item"] == name]
        fits = [mine if mine.empty else mine[mine["quantity"] == f"fit_{letter}"] for letter in "bc"]
        if any(of.empty for of in fits):
            continue
        b, c = map(mean_and_ends, fits)
        told = c[1] > EXPONENTS[0] and c[2] < EXPONENTS[1]
        away = b[2] <= 0 or (told and not c[1] <= 1 <= c[2])
        kinds.append("contradicted" if away else "supported" if told and b[1] > 0 else "undecided")
        ends = ", ".join(
            f"{letter} {fixed(v, 3)} ({fixed(w, 3)} … {fixed(h, 3)})"
            for letter, (v, w, h) in zip("bc", (b, c), strict=True)
        )
        parts.append(f"{method_name(name)} {ends}")
    if not kinds:
        return None
    kind: Finding = (
        "contradicted" if "contradicted" in kinds else "supported" if set(kinds) == {"supported"} else "undecided"
    )
    return kind, f"error = a + b·k^(−c): {'; '.join(parts)}"


def _overhead(runs: Sequence[Run], alpha: float) -> tuple[Finding, str] | None:
    """Attention's milliseconds a query over those of distance weighting, in batches."""
    rows = joined(runs, "profile_heads")
    rows = rows if rows.empty else rows[(rows["head"] == OURS) & (rows["quantity"] == "over_distance_ms")]
    if rows.empty:
        return None
    value, low, high = mean_and_ends(rows)
    kind: Finding = "supported" if high < OVERHEAD else "contradicted" if low >= OVERHEAD else "undecided"
    return kind, f"{fixed(value, 4)} ms ({fixed(low, 4)} … {fixed(high, 4)})"


# name for people: (the study's words, shortened; where they stand; the rule)
_CONCLUSIONS: dict[str, tuple[str, str, Callable[[Sequence[Run], float], tuple[Finding, str] | None]]] = {
    "attention outperforms in accuracy": (
        "Attention outperforms uniform and distance weighting.",
        "notebook 2, key finding 2",
        partial(_outperforms, metric="accuracy"),
    ),
    "the weights calibrate": (
        "A learned temperature improves calibration: lower ECE.",
        "notebook 2, key finding 3",
        partial(_outperforms, metric="ece"),
    ),
    "attention alone gives nothing": (
        "Attention alone gives nothing over distance weighting.",
        "write-up V, VI",
        _nothing_alone,
    ),
    "TTA calibrates": (
        "Test-time augmentation gives the calibration: ECE falls by 78 %.",
        "write-up II, experiment 5",
        _views,
    ),
    "the k-ensemble gives nothing": (
        "Averaging k 5, 10 and 20 improves nothing.",
        "write-up II, experiment 5",
        _ensemble,
    ),
    "any k will do": ("Accuracy is stable over k from 1 to 50.", "write-up III", _any_k),
    "error O(1/k)": (
        "The error is O(1/k): it falls with k.",
        "notebook, theory links; notebook 2, key finding 5",
        _inverse_k,
    ),
    "kNN is robust to label noise": (
        "All kNN methods are robust to 30 % wrong labels in the memory: about 98 % of the accuracy is kept.",
        "write-up III",
        partial(_robust, table="noise", condition="noise 0.3"),
    ),
    "attention adds robustness": (
        "Attention provides robustness to label noise.",
        "notebook 2, key finding 4; the write-up takes it back",
        _adds_robustness,
    ),
    "kNN is robust to a long tail": (
        "All kNN methods are robust to a long tail of 1:100 in the memory.",
        "write-up III",
        partial(_robust, table="imbalance", condition="long tail 0.01"),
    ),
    "the gap to the network is fundamental": (
        "A gap of 5 to 9 points to the network is fundamental to kNN.",
        "write-up III, VI, X",
        _gap,
    ),
    "below 1 ms": ("Attention adds less than 1 ms a query.", "write-up VII", _overhead),
}


def conclusions(runs: Sequence[Run], alpha: float = 0.01) -> list[Conclusion]:
    """Every conclusion of the study that the runs of one dataset can say something of.

    Args:
        runs: the seeds of one dataset.
        alpha: the chance of a false difference in each.
    """
    found = []
    for name, (words, source, rule) in _CONCLUSIONS.items():
        said = rule(runs, alpha)
        if said is not None:
            found.append(Conclusion(name, words, source, *said))
    return found

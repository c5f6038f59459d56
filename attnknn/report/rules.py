"""Rules that test each conclusion of the historic study on the runs of one dataset.

Each returns supported, contradicted, undecided or underpowered with the numbers, or None where its table is missing.
gains.py defines gain and underpowered. Scores without a paired interval are compared by their own intervals, which is
conservative, since the test rows are the same.
"""

from collections.abc import Sequence

import pandas as pd

from attnknn.report.claims import OURS
from attnknn.report.gains import (
    MARGIN,
    Finding,
    Level,
    Pair,
    as_pair,
    change,
    gained,
    gained_over_each,
    limited_by_width,
    mean_and_ends,
    nothing_gained,
    rate_verdict,
    read_change,
    read_pair,
    read_scores,
    too_few_errors,
    too_wide,
)
from attnknn.report.historic import METHODS
from attnknn.report.plots import CALIBRATIONS, METRICS, method_name
from attnknn.report.results import UNCHANGED, Run, joined
from attnknn.report.tables import fixed

Outcome = tuple[Finding, str]  # a verdict, and its numbers
KEPT = 0.98  # share of the accuracy kept by a robust method: the study's at 30 % wrong labels
LARGEST = 50  # k of the study's sweep
FLAT = 0.01  # largest range of accuracy over k where k hardly matters; the study's was .001 to .024
NOISY = "noise 0.3"  # the study's share of wrong labels
GAP = 0.05  # accuracy between kNN and network: the lower end of the study's 5–9 points
OVERHEAD = 1.0  # milliseconds per query


def outperforms(runs: Sequence[Run], level: Level) -> Outcome | None:
    """Attention is more accurate than both uniform and distance weighting; see `gained`."""
    pairs = {
        name: read_pair(runs, "paired", "accuracy", level, method=OURS, baseline=name)
        for name in ("uniform", "distance")
    }
    known = {name: pair for name, pair in pairs.items() if pair is not None}
    if len(known) < len(pairs):
        return None
    parts = [f"against {method_name(name)} {pair}" for name, pair in known.items()]
    return gained(known.values()), f"Accuracy of attention, the whole head, {', '.join(parts)}"


def _ablated(runs: Sequence[Run], variant: str, reference: str, metric: str) -> pd.DataFrame:
    """The ablation's rows of a variant minus that reference, with the errors of the variant."""
    rows = joined(runs, "ablation")
    if rows.empty:
        return rows
    rows = rows[(rows["variant"] == variant) & (rows["reference"] == reference)]
    accuracy = rows.loc[rows["metric"] == "accuracy", "value"].max()
    return rows if rows.empty else rows[rows["metric"] == metric].assign(errors=_errors(runs, accuracy))


def temperature(runs: Sequence[Run], level: Level) -> Outcome | None:
    """ECE of distance weighting with a learned temperature against a tuned one, both uncalibrated."""
    rows = _ablated(runs, "alone temperature", "distance", "ece")
    if rows.empty:
        return None
    pair = as_pair(rows, "ece", level)
    return gained([pair]), f"ECE of a learned temperature alone, against distance weighting with a tuned one: {pair}"


def nothing_alone(runs: Sequence[Run], level: Level) -> Outcome | None:
    """The ablation's historic form against distance weighting in accuracy and NLL, and with vector scaling in NLL.

    The tables hold each minus the whole head; see `attnknn.report.gains.change`. With folds the historic form is
    fitted on fewer rows than distance weighting is tuned on, and compared with another head: left out.
    """

    def against(other: str, metric: str) -> Pair | None:
        baseline, historic = (_ablated(runs, name, "full", metric) for name in (other, "historic"))
        return None if baseline.empty or historic.empty else change(baseline, historic, metric)

    candidates = {metric: against("distance", metric) for metric in ("accuracy", "nll")}
    pairs = {metric: pair for metric, pair in candidates.items() if pair is not None}
    if not pairs:
        return None
    text = ", ".join(f"{METRICS[metric]} {pair}" for metric, pair in pairs.items())
    vector = against("distance_vector", "nll")
    beyond = f"; against the same with vector scaling NLL {vector}" if vector else ""
    form = "the study's query-key attention, fitted without its faults"
    return nothing_gained(pairs.values()), f"{form}, against distance weighting: {text}{beyond}"


def views(runs: Sequence[Run], level: Level) -> Outcome | None:
    """Attention's ECE with all views against one, both recalibrated alike; see `gained`.

    A mean of views is less confident than one view. Without recalibration that lowers the ECE of an overconfident
    method and raises that of others, so that difference is shown and decides nothing. Every calibration must show a
    gain, fitted to the mean on one side and to the single view on the other.
    """
    paired = joined(runs, "tta_paired")
    if paired.empty:
        return None
    n_views = int(paired["views"].max())
    where = {"views": n_views, "baseline_views": 1}
    names = (*(f"{OURS}_{kind}" for kind in CALIBRATIONS), *METHODS[::-1])
    named = ((m, read_pair(runs, "tta_paired", "ece", level, method=m, baseline=m, **where)) for m in names)
    pairs = {name: limited_by_width(pair, "ece") for name, pair in named if pair is not None}
    recalibrated = [pair for name, pair in pairs.items() if name not in METHODS]
    if not recalibrated:
        return None
    words = {"yes": "lower", "no": "higher", "undecided": "no difference shown"}
    parts = [f"{method_name(name)} {words[pair.better]}, {pair}" for name, pair in pairs.items()]
    cut = len(recalibrated)
    bare = f"; uncalibrated, which decides nothing: {'; '.join(parts[cut:])}" if parts[cut:] else ""
    return gained(recalibrated), f"ECE with {n_views} views against one: {'; '.join(parts[:cut])}{bare}"


def ensemble(runs: Sequence[Run], level: Level) -> Outcome | None:
    """The k-ensemble of attention against its single k, in accuracy and NLL: is every gain that matters ruled out?"""
    where = {"variant": "k_ensemble", "method": OURS, "baseline": "single"}
    named = ((metric, read_pair(runs, "ensemble_paired", metric, level, **where)) for metric in ("accuracy", "nll"))
    pairs = {metric: pair for metric, pair in named if pair is not None}
    if not pairs:
        return None
    parts = [
        f"{METRICS[metric]} {fixed(pair.difference, 4, True)} ({pair.ends}), no gain of {MARGIN[metric]:g} is left"
        if pair.ruled_out
        else f"{METRICS[metric]} {pair}"
        for metric, pair in pairs.items()
    ]
    return nothing_gained(pairs.values()), f"k-ensemble less single k: {'; '.join(parts)}"


def _errors(runs: Sequence[Run], accuracy: float) -> int:
    """Wrong test rows at an accuracy, in the run that has fewest rows."""
    return round((1 - accuracy) * min(run.json["prepare"]["test"] for run in runs))


def _of_all(kinds: Sequence[Finding]) -> Finding:
    """A claim about several methods: contradicted by one, supported by all; else undecided or underpowered."""
    if "contradicted" in kinds:
        return "contradicted"
    open_ = set(kinds) - {"supported"}
    return "supported" if not open_ else "underpowered" if open_ == {"underpowered"} else "undecided"


def _finding(few: str, holds: bool, fails: bool, wide: str = "") -> tuple[Finding, str]:
    """A finding, and why it is underpowered: too `few` errors, or undecided by a too `wide` interval."""
    if few:
        return "underpowered", few
    if holds or fails:
        return "supported" if holds else "contradicted", ""
    return "underpowered" if wide else "undecided", wide


def any_k(runs: Sequence[Run], level: Level) -> Outcome | None:
    """Every method's accuracy varies by less than `FLAT` over k.

    The range lies between the highest lower end minus the lowest upper end, and the highest upper end minus the lowest
    lower end: supported where the latter is below `FLAT`, contradicted where the former is not. Underpowered where the
    latter would not be below it even with the same accuracy at every k.
    """
    table = joined(runs, "k_sweep")
    ks = [] if table.empty else sorted(k for k in table["k"].unique() if k <= LARGEST)
    swept = {k: read_scores(runs, "k_sweep", "accuracy", k=k) for k in ks}
    kinds: list[Finding] = []
    parts = []
    for name in METHODS:
        by_k = {k: scores[name] for k, scores in swept.items() if name in scores}
        if not by_k:
            continue
        values, lows, highs = zip(*by_k.values(), strict=True)
        least, most = max(lows) - min(highs), max(highs) - min(lows)
        up, down = ([abs(end - v) for end, v in zip(ends, values, strict=True)] for ends in (highs, lows))
        wide = too_wide(max(up) + max(down), FLAT)
        kind, why = _finding(too_few_errors(_errors(runs, min(values))), most < FLAT, least >= FLAT, wide)
        kinds.append(kind)
        best, worst = (pick(by_k, key=lambda k, by_k=by_k: by_k[k][0]) for pick in (max, min))
        ends = f"at most {fixed(most, 4)}, best at k {best}, worst at {worst}"
        parts.append(f"{method_name(name)} {fixed(max(values) - min(values), 4)} ({ends}{why and '; ' + why})")
    return (_of_all(kinds), f"accuracy between the best and the worst k: {', '.join(parts)}") if kinds else None


def robust(runs: Sequence[Run], level: Level, table: str, condition: str) -> Outcome | None:
    """Every method keeps `KEPT` of its accuracy.

    The share lies between its lower end over the clean upper end, and its upper end over the clean lower end.
    Underpowered where the intervals would be too wide even if all accuracy were kept.
    """
    clean, worse = read_scores(runs, "intervals", "accuracy"), read_scores(runs, table, "accuracy", condition=condition)
    nll, clean_nll = read_scores(runs, table, "nll", condition=condition), read_scores(runs, "intervals", "nll")
    kinds: list[Finding] = []
    parts = []
    for name in METHODS:
        if name not in clean or name not in worse:
            continue
        value, low, high = (worse[name][i] / clean[name][j] for i, j in ((0, 0), (1, 2), (2, 1)))
        down = worse[name][0] - worse[name][1]
        wide = too_wide(1 - (clean[name][0] - down) / clean[name][2], 1 - KEPT)
        few = too_few_errors(_errors(runs, min(worse[name][0], clean[name][0])))
        kind, why = _finding(few, low >= KEPT, high < KEPT, wide)
        kinds.append(kind)
        ends = f"{fixed(100 * low, 1)} … {fixed(100 * high, 1)}{why and '; ' + why}"
        both = name in nll and name in clean_nll
        move = f", NLL {fixed(clean_nll[name][0], 3)} → {fixed(nll[name][0], 3)}" if both else ""
        parts.append(f"{method_name(name)} {fixed(100 * value, 1)} % ({ends}){move}")
    return (_of_all(kinds), f"accuracy kept: {'; '.join(parts)}") if kinds else None


def adds_robustness(runs: Sequence[Run], level: Level) -> Outcome | None:
    """Attention loses less than others from clean labels to 30 % wrong ones; see `gained_over_each`.

    The others are distance weighting, the same with vector scaling (compared with attention with vector scaling), and
    prototypes, which show what is kept without neighbours.
    """
    against = ((OURS, "distance"), (f"{OURS}_vector", "distance_vector"), (OURS, "prototypes"))
    by_metric: dict[str, dict[str, Pair]] = {}
    for metric in ("accuracy", "nll"):
        candidates = (
            (other, read_change(runs, "noise_paired", metric, (UNCHANGED, NOISY), method=method, baseline=other))
            for method, other in against
        )
        pairs = {other: pair for other, pair in candidates if pair is not None}
        if len(pairs) == len(against):
            by_metric[metric] = pairs
    if not by_metric:
        return None
    parts = [
        f"{METRICS[metric]} against {', '.join(f'{method_name(name)} {pair}' for name, pair in pairs.items())}"
        for metric, pairs in by_metric.items()
    ]
    shared = [
        METRICS[metric]
        for metric, pairs in by_metric.items()
        if pairs["distance"].better == "yes" and pairs["prototypes"].ruled_out
    ]
    text = f"; prototypes alone lose as little in {' and '.join(shared)}" if shared else ""
    kind = gained_over_each([pairs.values() for pairs in by_metric.values()])
    return kind, f"change from clean to 30 % wrong, attention minus another: {'; '.join(parts)}{text}"


def gap(runs: Sequence[Run], level: Level) -> Outcome | None:
    """The plain network is ahead by `GAP`: supported by its whole interval, contradicted where it cannot be."""
    pair = read_pair(runs, "paired", "accuracy", level, method=OURS, baseline="cnn")
    if pair is None:
        return None
    low, high = -pair.high, -pair.low
    kind, why = _finding(pair.unreachable, low >= GAP, high < GAP)
    ends = f"{fixed(100 * low, 2, True)} … {fixed(100 * high, 2, True)}{why and '; ' + why}"
    return kind, f"{method_name('cnn')} less attention: {fixed(-100 * pair.difference, 2, True)} ({ends}) points"


def inverse_k(runs: Sequence[Run], level: Level) -> Outcome | None:
    """error = a + b·k^(−c) for every method: `rate_verdict`, as in the section on theory."""
    rows, curve = joined(runs, "theory"), joined(runs, "theory_fit")
    kinds: list[Finding] = []
    parts = []
    for name in METHODS if not curve.empty else ():
        quantities = rows[rows["item"] == name].groupby("quantity")
        if "fit_b" not in quantities.groups:
            continue
        b, c, (r2, _, _) = (mean_and_ends(quantities.get_group(f"fit_{letter}")) for letter in ("b", "c", "r2"))
        errors = _errors(runs, 1 - curve.loc[curve["method"] == name, "error"].max())
        why = too_few_errors(errors)
        kinds.append("underpowered" if why else rate_verdict(b[1:], c[1:], r2, errors))
        ends = ", ".join(
            f"{letter} {fixed(v, 3)} ({fixed(w, 3)} … {fixed(h, 3)})"
            for letter, (v, w, h) in zip("bc", (b, c), strict=True)
        )
        parts.append(f"{method_name(name)} {ends}, R² {fixed(r2, 2)}{why and ', ' + why}")
    return (_of_all(kinds), f"error = a + b·k^(−c): {'; '.join(parts)}") if kinds else None


def overhead(runs: Sequence[Run], level: Level) -> Outcome | None:
    """Milliseconds of attention minus distance weighting, per query in a batch and for a single query.

    Both have to stay below `OVERHEAD`. The medians of single queries are timed separately: low = low₂ − high₁ etc.
    """
    rows = joined(runs, "profile_heads")
    if rows.empty:
        return None
    keys = ((OURS, "over_distance_ms"), (OURS, "single_p50_ms"), ("distance", "single_p50_ms"))
    batched, attention, other = (rows[(rows["head"] == head) & (rows["quantity"] == name)] for head, name in keys)
    if batched.empty or attention.empty or other.empty:
        return None
    (value, low, high), (base, least, most) = mean_and_ends(attention), mean_and_ends(other)
    uses = {"in a batch": mean_and_ends(batched), "alone": (value - base, low - most, high - least)}
    kinds: list[Finding] = [_finding("", top < OVERHEAD, bottom >= OVERHEAD)[0] for _, bottom, top in uses.values()]
    parts = [
        f"{use} {fixed(v, 4, True)} ms ({fixed(bottom, 4, True)} … {fixed(top, 4, True)})"
        for use, (v, bottom, top) in uses.items()
    ]
    return _of_all(kinds), f"a query {', '.join(parts)}, {fixed(value, 3)} against {fixed(base, 3)}"

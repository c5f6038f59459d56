"""The rules that hold a conclusion of the historic study against the numbers of a dataset's runs.

Each states when its conclusion is supported, contradicted, undecided or out of reach, and returns None where its table
is not there. What counts as a gain, and what is out of reach, is said in gains.py. Scores whose difference has no
paired interval are held apart by their own intervals, which is too cautious, since the rows are the same.
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
    blurred,
    change,
    change_of,
    few,
    gained,
    gained_over_each,
    mean_and_ends,
    nothing_gained,
    pair_of,
    rate_verdict,
    scores_of,
    wide,
)
from attnknn.report.historic import METHODS
from attnknn.report.plots import CALIBRATIONS, METRICS, method_name
from attnknn.report.results import UNCHANGED, Run, joined
from attnknn.report.tables import fixed

Said = tuple[Finding, str]  # a verdict, and the numbers it rests on
KEPT = 0.98  # share of the accuracy that is left where the study calls it robust: its own at 30 % wrong labels
LARGEST = 50  # k of the study's sweep
FLAT = 0.01  # accuracy between the best and the worst k where k hardly matters; the study's own was .001 to .024
NOISY = "noise 0.3"  # the study's share of wrong labels
GAP = 0.05  # accuracy between kNN and network: the lower end of the study's 5–9 points
OVERHEAD = 1.0  # milliseconds a query


def outperforms(runs: Sequence[Run], level: Level) -> Said | None:
    """Supported where attention is more accurate than uniform and distance weighting both; see `gained`."""
    found = {
        name: pair_of(runs, "paired", "accuracy", level, method=OURS, baseline=name) for name in ("uniform", "distance")
    }
    pairs = {name: pair for name, pair in found.items() if pair is not None}
    if len(pairs) < len(found):
        return None
    parts = [f"against {method_name(name)} {pair}" for name, pair in pairs.items()]
    return gained(pairs.values()), f"Accuracy of attention, the whole head, {', '.join(parts)}"


def _ablated(runs: Sequence[Run], variant: str, reference: str, metric: str) -> pd.DataFrame:
    """The ablation's rows of a variant less that reference, with the test rows that the variant gets wrong."""
    rows = joined(runs, "ablation")
    if rows.empty:
        return rows
    rows = rows[(rows["variant"] == variant) & (rows["reference"] == reference)]
    right = rows.loc[rows["metric"] == "accuracy", "value"].max()
    return rows if rows.empty else rows[rows["metric"] == metric].assign(errors=_wrong(runs, right))


def temperature(runs: Sequence[Run], level: Level) -> Said | None:
    """A learned temperature and nothing else against distance weighting with a tuned one, in ECE, both as they are."""
    rows = _ablated(runs, "alone temperature", "distance", "ece")
    if rows.empty:
        return None
    pair = as_pair(rows, "ece", level)
    return gained([pair]), f"ECE of a learned temperature alone, against distance weighting with a tuned one: {pair}"


def nothing_alone(runs: Sequence[Run], level: Level) -> Said | None:
    """The ablation's historic form against distance weighting in accuracy and NLL, and with vector scaling in NLL.

    The tables hold what each is less the whole head; see `attnknn.report.gains.change`. With folds the historic form is
    fitted on fewer rows than distance weighting is tuned on, and compared with another head: left out.
    """

    def against(other: str, metric: str) -> Pair | None:
        of_other, mine = (_ablated(runs, name, "full", metric) for name in (other, "historic"))
        return None if of_other.empty or mine.empty else change(of_other, mine, metric)

    asked = {metric: against("distance", metric) for metric in ("accuracy", "nll")}
    pairs = {metric: pair for metric, pair in asked.items() if pair is not None}
    if not pairs:
        return None
    text = ", ".join(f"{METRICS[metric]} {pair}" for metric, pair in pairs.items())
    left = against("distance_vector", "nll")
    beyond = f"; against the same with vector scaling NLL {left}" if left else ""
    form = "the study's query-key attention, fitted without its faults"
    return nothing_gained(pairs.values()), f"{form}, against distance weighting: {text}{beyond}"


def views(runs: Sequence[Run], level: Level) -> Said | None:
    """Attention's ECE with all views against one, both recalibrated alike; see `gained`.

    A mean of views is less sure than one view. Bare, that lowers ECE where one view is too sure and raises it where one
    is not, and a recalibration does or undoes as much: the bare difference is shown and decides nothing. Every
    calibration there is has to show a gain, fitted to the mean on one side and to the one view on the other.
    """
    paired = joined(runs, "tta_paired")
    if paired.empty:
        return None
    alone = {"views": int(paired["views"].max()), "baseline_views": 1}
    names = (*(f"{OURS}_{kind}" for kind in CALIBRATIONS), *METHODS[::-1])
    named = ((name, pair_of(runs, "tta_paired", "ece", level, method=name, baseline=name, **alone)) for name in names)
    pairs = {name: blurred(pair, "ece") for name, pair in named if pair is not None}
    recalibrated = [pair for name, pair in pairs.items() if name not in METHODS]
    if not recalibrated:
        return None
    words = {"yes": "lower", "no": "higher", "undecided": "not shown to differ"}
    parts = [f"{method_name(name)} {words[pair.better]}, {pair}" for name, pair in pairs.items()]
    cut = len(recalibrated)
    bare = f"; bare, which decides nothing: {'; '.join(parts[cut:])}" if parts[cut:] else ""
    return gained(recalibrated), f"ECE with {alone['views']} views against one: {'; '.join(parts[:cut])}{bare}"


def ensemble(runs: Sequence[Run], level: Level) -> Said | None:
    """The k-ensemble of attention against its single k, in accuracy and NLL: is every gain that matters ruled out?

    A loss is not asked for, and none is called.
    """
    of = {"variant": "k_ensemble", "method": OURS, "baseline": "single"}
    named = ((metric, pair_of(runs, "ensemble_paired", metric, level, **of)) for metric in ("accuracy", "nll"))
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


def _wrong(runs: Sequence[Run], accuracy: float) -> int:
    """Wrong test rows at an accuracy, in the run that has fewest rows."""
    return round((1 - accuracy) * min(run.json["prepare"]["test"] for run in runs))


def _of_all(kinds: Sequence[Finding]) -> Finding:
    """Of a claim about several: contradicted by one, supported by all; out of reach where all that is open is."""
    if "contradicted" in kinds:
        return "contradicted"
    left = set(kinds) - {"supported"}
    return "supported" if not left else "out of reach" if left == {"out of reach"} else "undecided"


def _judged(rows: str, holds: bool, fails: bool, width: str = "") -> tuple[Finding, str]:
    """A finding, and why it is out of reach: `rows` are too few, or it is open and the interval's `width` too large."""
    if rows:
        return "out of reach", rows
    if holds or fails:
        return "supported" if holds else "contradicted", ""
    return "out of reach" if width else "undecided", width


def any_k(runs: Sequence[Run], level: Level) -> Said | None:
    """Does every method's accuracy move by less than `FLAT` over k?

    What k moves lies between the highest lower end less the lowest upper end, and the highest upper end less the lowest
    lower end: supported where the latter is below `FLAT`, contradicted where the former is not. Out of reach where the
    latter would not be below it, were the accuracy the same at every k.
    """
    table = joined(runs, "k_sweep")
    ks = [] if table.empty else sorted(k for k in table["k"].unique() if k <= LARGEST)
    at = {k: scores_of(runs, "k_sweep", "accuracy", k=k) for k in ks}
    kinds: list[Finding] = []
    parts = []
    for name in METHODS:
        of = {k: scores[name] for k, scores in at.items() if name in scores}
        if not of:
            continue
        values, lows, highs = zip(*of.values(), strict=True)
        least, most = max(lows) - min(highs), max(highs) - min(lows)
        up, down = ([abs(end - v) for end, v in zip(ends, values, strict=True)] for ends in (highs, lows))
        too_wide = wide(max(up) + max(down), FLAT)
        kind, why = _judged(few(_wrong(runs, min(values))), most < FLAT, least >= FLAT, too_wide)
        kinds.append(kind)
        best, worst = (by(of, key=lambda k, of=of: of[k][0]) for by in (max, min))
        ends = f"at most {fixed(most, 4)}, best at k {best}, worst at {worst}"
        parts.append(f"{method_name(name)} {fixed(max(values) - min(values), 4)} ({ends}{why and '; ' + why})")
    return (_of_all(kinds), f"accuracy between the best and the worst k: {', '.join(parts)}") if kinds else None


def robust(runs: Sequence[Run], level: Level, table: str, condition: str) -> Said | None:
    """Does every method keep `KEPT` of its accuracy?

    Between its lower end over the clean one's upper, and its upper over the clean one's lower: supported where all of
    that is kept, contradicted where none is. Out of reach where, were all of it kept, the intervals would leave open
    that it is not.
    """
    clean, worse = scores_of(runs, "intervals", "accuracy"), scores_of(runs, table, "accuracy", condition=condition)
    nll, bare = scores_of(runs, table, "nll", condition=condition), scores_of(runs, "intervals", "nll")
    kinds: list[Finding] = []
    parts = []
    for name in METHODS:
        if name not in clean or name not in worse:
            continue
        value, low, high = (worse[name][i] / clean[name][j] for i, j in ((0, 0), (1, 2), (2, 1)))
        down = worse[name][0] - worse[name][1]
        too_wide = wide(1 - (clean[name][0] - down) / clean[name][2], 1 - KEPT)
        rows = few(_wrong(runs, min(worse[name][0], clean[name][0])))
        kind, why = _judged(rows, low >= KEPT, high < KEPT, too_wide)
        kinds.append(kind)
        ends = f"{fixed(100 * low, 1)} … {fixed(100 * high, 1)}{why and '; ' + why}"
        move = f", NLL {fixed(bare[name][0], 3)} → {fixed(nll[name][0], 3)}" if name in nll and name in bare else ""
        parts.append(f"{method_name(name)} {fixed(100 * value, 1)} % ({ends}){move}")
    return (_of_all(kinds), f"accuracy kept: {'; '.join(parts)}") if kinds else None


def adds_robustness(runs: Sequence[Run], level: Level) -> Said | None:
    """Does attention lose less than others from clean labels to 30 % wrong ones? See `gained_over_each`.

    The others are distance weighting, the same with vector scaling (attention has it then too), and prototypes alone:
    what these keep as well is none of attention's doing.
    """
    against = ((OURS, "distance"), (f"{OURS}_vector", "distance_vector"), (OURS, "prototypes"))
    found: dict[str, dict[str, Pair]] = {}
    for metric in ("accuracy", "nll"):
        asked = (
            (other, change_of(runs, "noise_paired", metric, (UNCHANGED, NOISY), method=mine, baseline=other))
            for mine, other in against
        )
        pairs = {other: pair for other, pair in asked if pair is not None}
        if len(pairs) == len(against):
            found[metric] = pairs
    if not found:
        return None
    parts = [
        f"{METRICS[metric]} against {', '.join(f'{method_name(name)} {pair}' for name, pair in pairs.items())}"
        for metric, pairs in found.items()
    ]
    shared = [
        METRICS[metric]
        for metric, pairs in found.items()
        if pairs["distance"].better == "yes" and pairs["prototypes"].ruled_out
    ]
    text = f"; prototypes alone lose as little in {' and '.join(shared)}" if shared else ""
    kind = gained_over_each([pairs.values() for pairs in found.values()])
    return kind, f"what moves from clean to 30 % wrong, attention less another: {'; '.join(parts)}{text}"


def gap(runs: Sequence[Run], level: Level) -> Said | None:
    """Supported where the plain network is ahead by `GAP` by its whole interval, contradicted where it cannot be."""
    pair = pair_of(runs, "paired", "accuracy", level, method=OURS, baseline="cnn")
    if pair is None:
        return None
    low, high = -pair.high, -pair.low
    kind, why = _judged(pair.unreachable, low >= GAP, high < GAP)
    ends = f"{fixed(100 * low, 2, True)} … {fixed(100 * high, 2, True)}{why and '; ' + why}"
    text = f"{method_name('cnn')} less attention: {fixed(-100 * pair.difference, 2, True)} ({ends}) points"
    return kind, text


def inverse_k(runs: Sequence[Run], level: Level) -> Said | None:
    """Of error = a + b·k^(−c), for every method: `rate_verdict`, as in the section on theory."""
    rows, curve = joined(runs, "theory"), joined(runs, "theory_fit")
    kinds: list[Finding] = []
    parts = []
    for name in METHODS if not curve.empty else ():
        mine = rows[rows["item"] == name].groupby("quantity")
        if "fit_b" not in mine.groups:
            continue
        b, c, (r2, _, _) = (mean_and_ends(mine.get_group(f"fit_{of}")) for of in ("b", "c", "r2"))
        errors = _wrong(runs, 1 - curve.loc[curve["method"] == name, "error"].max())
        why = few(errors)
        kinds.append("out of reach" if why else rate_verdict(b[1:], c[1:], r2, errors))
        ends = ", ".join(
            f"{letter} {fixed(v, 3)} ({fixed(w, 3)} … {fixed(h, 3)})"
            for letter, (v, w, h) in zip("bc", (b, c), strict=True)
        )
        parts.append(f"{method_name(name)} {ends}, R² {fixed(r2, 2)}{why and ', ' + why}")
    return (_of_all(kinds), f"error = a + b·k^(−c): {'; '.join(parts)}") if kinds else None


def overhead(runs: Sequence[Run], level: Level) -> Said | None:
    """Attention's milliseconds a query over those of distance weighting: of a query in a batch, and of a query alone.

    Both have to stay below `OVERHEAD`. Of a query alone the medians are timed apart: low = low₂ − high₁ and so on.
    """
    rows = joined(runs, "profile_heads")
    if rows.empty:
        return None
    asked = ((OURS, "over_distance_ms"), (OURS, "single_p50_ms"), ("distance", "single_p50_ms"))
    batched, mine, other = (rows[(rows["head"] == head) & (rows["quantity"] == of)] for head, of in asked)
    if batched.empty or mine.empty or other.empty:
        return None
    (value, low, high), (base, least, most) = mean_and_ends(mine), mean_and_ends(other)
    uses = {"in a batch": mean_and_ends(batched), "alone": (value - base, low - most, high - least)}
    kinds: list[Finding] = [_judged("", top < OVERHEAD, bottom >= OVERHEAD)[0] for _, bottom, top in uses.values()]
    parts = [
        f"{use} {fixed(v, 4, True)} ms ({fixed(bottom, 4, True)} … {fixed(top, 4, True)})"
        for use, (v, bottom, top) in uses.items()
    ]
    return _of_all(kinds), f"a query {', '.join(parts)}, {fixed(value, 3)} against {fixed(base, 3)}"

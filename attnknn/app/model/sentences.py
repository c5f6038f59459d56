"""Predictions, weights and counterfactuals as sentences, for the command line and the plot."""

from typing import Any

NOVEL = 0.05  # p value up to which an input is called novel


def percent(share: float) -> str:
    """Format a share of 1 in whole percent, with one decimal below 1 and above 99."""
    value = 100 * share
    if 0 < value < 0.05 or 99.95 <= value < 100:
        return "< 0.1 %" if value < 1 else "> 99.9 %"
    return f"{value:.0f} %" if 1 <= value <= 99 or value in (0, 100) else f"{value:.1f} %"


def describe_answer(answer: dict[str, Any]) -> str:
    """Prediction, confidence and prediction set; see `Model.answers`."""
    labels = ", ".join(map(str, answer["set"]))
    abstains = "abstains; the likeliest is " if answer["abstains"] else ""
    return f"{abstains}{answer['prediction']} ({percent(answer['confidence'])}); 90 % set: {{{labels}}}"


def describe_nearest(answer: dict[str, Any]) -> str:
    """Distance of the nearest neighbour beside usual ones; empty for models without these."""
    nearest = answer["nearest"]
    if nearest is None:
        return ""
    distance, usual = f"{nearest['distance']:,.4g}", f"{nearest['usual']:,.4g}"
    if nearest["far"]:
        return f"Far from the memory: nearest neighbour at {distance}, usually {usual}; do not rely on it."
    return f"Nearest neighbour at {distance}, percentile {int(nearest['percentile'])} of usual distances."


def describe_novelty(answer: dict[str, Any]) -> str:
    """That few held-out rows are as unlike the memory; empty for usual rows, and where `describe_nearest` says so."""
    p, nearest = answer["novelty"], answer["nearest"]
    if p is None or p > NOVEL or (nearest is not None and nearest["far"]):
        return ""
    return f"Novel: {percent(p)} of held-out rows are as unlike the memory."


def describe_rest(answer: dict[str, Any]) -> str:
    """Weights of the neighbours that are not listed and of the null neighbours."""
    rest, null = answer["rest"], answer["null"]
    others = f"{rest['count']} more neighbours weigh {percent(rest['weight'])}, " if rest["count"] else ""
    return f"{others}{null['of']} {percent(null['weight'])}"


def describe_decision(answer: dict[str, Any]) -> str:
    """Which part gave the votes for the prediction."""
    share = answer["null"]["share"]
    return f"Votes for it: {percent(1 - share)} from neighbours, {percent(share)} from the {answer['null']['of']}."


def describe_counterfactual(answer: dict[str, Any], change: dict[str, Any]) -> str:
    """Counterfactual of a prediction; see `Model.counterfactuals`."""
    ids = ", ".join(f"#{row}" for row in change["ids"][:8]) + (", …" if len(change["ids"]) > 8 else "")
    count, outcome = len(change["ids"]), f"{change['prediction']} ({percent(change['confidence'])})"
    rows = f"neighbour {ids}" if count == 1 else f"its {count} heaviest neighbours for {answer['prediction']} ({ids})"
    if not count:
        return "No neighbour votes for it."
    null = answer["null"]["of"]
    refitted = "" if null == "class shares" else f", the {null} refitted"
    if change["how"] == "forget":
        without = "Without" if change["turned"] else "Even without"
        still = "" if change["turned"] else "still "
        return f"{without} {rows}{refitted and refitted + ','} it would {still}be {outcome}."
    relabelled = f"{rows} were {change['label']}{refitted}"
    if change["turned"]:
        return f"If {relabelled}, it would be {outcome}."
    return f"Even if {relabelled}, it would still be {outcome}."

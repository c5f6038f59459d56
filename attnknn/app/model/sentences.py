"""Answers as sentences."""

from typing import Any


def percent(share: float) -> str:
    """A share of 1 in whole percent, with one digit below 1 and above 99."""
    value = 100 * share
    if 0 < value < 0.05 or 99.95 <= value < 100:
        return "< 0.1 %" if value < 1 else "> 99.9 %"
    return f"{value:.0f} %" if 1 <= value <= 99 or value in (0, 100) else f"{value:.1f} %"


def sentence(answer: dict[str, Any]) -> str:
    """The answer, and how sure it is."""
    within = ", ".join(map(str, answer["set"]))
    sure = "abstains; the likeliest is " if answer["abstains"] else ""
    return f"{sure}{answer['prediction']} ({percent(answer['confidence'])}); 90 % set: {{{within}}}"


def beside(answer: dict[str, Any]) -> str:
    """What the neighbours that are not shown, and no neighbour, have to say."""
    rest, null = answer["rest"], answer["null"]
    others = f"{rest['count']} more neighbours weigh {percent(rest['weight'])}, " if rest["count"] else ""
    return f"{others}{null['of']} {percent(null['weight'])}"


def what_changes(answer: dict[str, Any], change: dict[str, Any]) -> str:
    """What would have to be otherwise for another answer; see `Model.changes`."""
    ids = ", ".join(f"#{row}" for row in change["ids"][:8]) + (", …" if len(change["ids"]) > 8 else "")
    count, then = len(change["ids"]), f"{change['prediction']} ({percent(change['confidence'])})"
    which = f"neighbour {ids}" if count == 1 else f"its {count} heaviest neighbours for {answer['prediction']} ({ids})"
    if not count:
        return "No neighbour speaks for it."
    if change["how"] == "forget":
        return f"Without {which} it would be {then}."
    were = f"{which} were {change['label']}"
    return f"If {were}, it would be {then}." if change["turned"] else f"Even if {were}, it would still be {then}."

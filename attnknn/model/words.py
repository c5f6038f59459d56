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
    within = ", ".join(map(str, answer["set"])) or "none of the classes"
    sure = "abstains; the likeliest is " if answer["abstains"] else ""
    return f"{sure}{answer['prediction']} ({percent(answer['confidence'])}); nine times in ten it is among: {within}"


def what_changes(answer: dict[str, Any], change: dict[str, Any]) -> str:
    """Which neighbours decide."""
    ids = ", ".join(f"#{row}" for row in change["forget"][:10]) + (", …" if len(change["forget"]) > 10 else "")
    then = f"{change['prediction']} ({percent(change['confidence'])})"
    if not change["forget"]:
        return "No neighbour speaks for it."
    if not change["turned"]:
        return f"Without its {len(change['forget'])} heaviest neighbours for it, it would still be {then}."
    one = len(change["forget"]) == 1
    which = (
        f"neighbour {ids}"
        if one
        else f"its {len(change['forget'])} heaviest neighbours for {answer['prediction']} ({ids})"
    )
    return f"Without {which} it would be {then}."

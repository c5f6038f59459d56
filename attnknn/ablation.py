"""Which parts of the head carry its gain: each taken out of the whole, each put into it, each alone."""

from collections.abc import Mapping
from typing import Any

from attnknn.heads import EVIDENCE, PROTOTYPES_ALONE

Parts = dict[str, Any]

# Distance weighting whose temperature alone is learned.
NOTHING: Parts = {
    "similarity": "bank",
    "heads": 1,
    "temperature_bounds": [],
    "evidence": [],
    "self_attention": False,
    "label_bias": False,
    "prototypes": False,
    "class_correction": False,
    "null": False,
    "dropout": 0.0,
}
# The form of the historic study, trained correctly: four heads of query-key products with bounded temperatures.
HISTORIC: Parts = {"similarity": "dot", "heads": 4, "temperature_bounds": [0.05, 20.0], "null": True}
_SWITCHES = ("label_bias", "prototypes", "class_correction", "null")


def variants(full: Mapping[str, Any]) -> dict[tuple[str, str], Parts]:
    """Settings of `Attention` by (group, name).

    Groups: `full` is the head as it is configured; `without` takes out one part that it has; `with` puts in one that
    it lacks; `alone` is one part and nothing else; `reference` is the historic form and the prototypes alone.
    """
    whole = {**NOTHING, **full}
    named = list(whole["evidence"])
    made: dict[tuple[str, str], Parts] = {("full", "full"): whole}

    def changed(group: str, name: str, base: Parts, **changes: Any) -> None:
        made[group, name] = {**base, **changes}

    for part in EVIDENCE:
        if part in named:
            rest = [name for name in named if name != part]
            changed("without", part, whole, evidence=rest, self_attention=whole["self_attention"] and bool(rest))
        else:
            changed("with", part, whole, evidence=[*named, part])
        changed("alone", part, NOTHING, evidence=[part])
    if named:
        changed("without", "all evidence", whole, evidence=[], self_attention=False)
    all_evidence = named or list(EVIDENCE)
    changed("alone", "all evidence", NOTHING, evidence=all_evidence)
    changed(
        "without" if whole["self_attention"] else "with",
        "self_attention",
        whole,
        evidence=all_evidence,
        self_attention=not whole["self_attention"],
    )
    for part in _SWITCHES:
        changed("without" if whole[part] else "with", part, whole, **{part: not whole[part]})
        changed("alone", part, NOTHING, **{part: True})
    if whole["dropout"]:
        changed("without", "dropout", whole, dropout=0.0)
    else:
        changed("with", "dropout", whole, dropout=0.2)
    if whole["similarity"] != "bank":
        changed("without", whole["similarity"], whole, similarity="bank", heads=1)
    for similarity in ("l2", "dot"):
        if similarity != whole["similarity"]:
            changed("with", similarity, whole, similarity=similarity, heads=1)
        changed("alone", similarity, NOTHING, similarity=similarity)
    changed("alone", "temperature", NOTHING)
    changed("reference", "historic", {**NOTHING, **HISTORIC})
    changed("reference", "prototypes", {**NOTHING, **PROTOTYPES_ALONE})
    return made

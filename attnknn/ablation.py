"""Which parts of the head carry its gain: each taken out of the whole, each put into it, each alone."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.artifacts import TEST
from attnknn.classify import classify_part
from attnknn.comparison import compare
from attnknn.fitting import fit_head
from attnknn.heads import EVIDENCE, PROTOTYPES_ALONE
from attnknn.neighbourhood import Retrieved
from attnknn.scorecard import TESTED, Table, intervals_and_tests

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
    "learned_prior": False,
    "dropout": 0.0,
}
# The form of the historic study, trained correctly: four heads of query-key products with bounded temperatures.
HISTORIC: Parts = {"similarity": "dot", "heads": 4, "temperature_bounds": [0.05, 20.0], "learned_prior": True}
_SWITCHES = ("label_bias", "prototypes", "class_correction", "learned_prior")


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


def ablate(
    spaces: Sequence[Retrieved],
    repeats: int,
    k_train: int,
    k_eval: int,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    scoring: Mapping[str, Any],
    seed: int,
    device: str,
    progress: Callable[[str], object] | None = None,
) -> Table:
    """Every variant of attention (`ablation.variants`), several heads each, against the full one or distance weighting.

    The retrieval head, which has no such parts, is a reference, also where it is the kind that `fitting` names.
    Variants that learn one embedding space are fitted on the main embeddings alone.

    Returns:
        Rows of variant, group, repeat, metric, value, reference, difference, low, high, p: `alone` is compared with
        tuned distance weighting, everything else with the full head; `distance` and its calibration are references too.
    """
    full = fitting["parts"]
    rest = {name: value for name, value in fitting.items() if name not in ("kind", "parts")}
    rest |= {"temperatures": grids["temperatures"], "priors": grids["priors"], "k_train": k_train, "device": device}
    asked = {key: ("attention", parts) for key, parts in variants(full).items()}
    asked["reference", "retrieval"] = ("retrieval", full)
    main = spaces[:1]
    base = compare(spaces, {}, k_eval, **grids, calibrations=("vector",), device=device).test
    table: Table = []
    for repeat in range(repeats):
        groups: dict[str, str] = dict.fromkeys(("distance", "distance_vector"), "reference")
        probs = {name: base.probs[base.methods.index(name)] for name in groups}
        for (group, part), (of_kind, parts) in asked.items():
            name = f"{group} {part}" if group in ("without", "with", "alone") else part
            on = main if _of_one_space(of_kind, parts) else spaces
            head, _ = fit_head(on, kind=of_kind, parts=parts, **rest, seed=100 * seed + repeat)
            probs[name], groups[name] = classify_part(head, main, TEST, k_eval, device), group
            if progress is not None:
                progress(name)
        stacked = dataclasses.replace(base, probs=np.stack(list(probs.values())), methods=tuple(probs))
        against = {name: "distance" if group == "alone" else "full" for name, group in groups.items()}
        against = {name: reference for name, reference in against.items() if name != reference}
        intervals, paired = intervals_and_tests(stacked, list(against.items()), **scoring, seed=seed)
        value = {(row["method"], row["metric"]): row["value"] for row in intervals}
        for metric in TESTED:
            own = {"value": value["full", metric], "reference": "full", "difference": 0.0, "low": 0.0, "high": 0.0}
            table.append({"variant": "full", "group": "full", "repeat": repeat, "metric": metric, **own, "p": 1.0})
        for row in paired:
            about = {
                "variant": row["method"],
                "group": groups[row["method"]],
                "repeat": repeat,
                "metric": row["metric"],
            }
            numbers = {key: row[key] for key in ("difference", "low", "high", "p")}
            own = {"value": value[row["method"], row["metric"]], "reference": row["baseline"]}
            table.append({**about, **own, **numbers})
    return table


def _of_one_space(kind: str, parts: Mapping[str, Any]) -> bool:
    return kind == "retrieval" or parts.get("similarity", "bank") != "bank" or bool(parts.get("move_prototypes"))

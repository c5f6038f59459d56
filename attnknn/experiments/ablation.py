"""Which parts of the head carry its gain: each taken out of the whole, each put into it, each alone."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnknn.core.artifacts import TEST, VAL
from attnknn.core.parallel import run_parallel
from attnknn.evaluation import metrics
from attnknn.evaluation.evaluate import compare
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests, scores
from attnknn.heads.attention import FEATURES
from attnknn.heads.classify import classify_part
from attnknn.heads.fit import fit_head
from attnknn.heads.prototypes import fit_prototypes
from attnknn.heads.registry import learns_space
from attnknn.neighbours.space import EmbeddingSpace, classes_of

Parts = dict[str, Any]

# Distance weighting whose temperature alone is learned.
NOTHING: Parts = {
    "similarity": "bank",
    "heads": 1,
    "temperature_bounds": [],
    "features": [],
    "self_attention": False,
    "label_bias": False,
    "prototypes": False,
    "move_prototypes": False,
    "class_correction": False,
    "learned_prior": False,
    "dropout": 0.0,
}
# The form of the historic study: four heads of query-key products with bounded temperatures (.5 at the start, .05 … 2,
# so .1 … 4 times the start). Trained correctly, and starting as distance weighting: there the products were all there
# was, of projections that stayed random.
HISTORIC: Parts = {"similarity": "dot", "heads": 4, "temperature_bounds": [0.1, 4.0], "learned_prior": True}
# What the head is fitted for, in the terms of `fit_head`: its value when it is off, and the one that is put in.
OBJECTIVES = {
    "entropy": ("entropy_weight", 0.0, 0.01),  # weight of the historic study
    "label_smoothing": ("label_smoothing", 0.0, 0.05),
    "hard_queries": ("hard_weight", 1.0, 3.0),
    "calibration": ("calibration_weight", 0.0, 1.0),
}
DROPOUT = 0.2
# Parts of the retrieval head, each taken out; and dropout the other way.
READING = {"shared key": "key", "label embedding": "label_embedding", "value correction": "correction"}
ONE_SPACE = "full, without folds"
REFERENCES = ("distance", "distance_vector", "prototypes")  # fitted once
_SWITCHES = ("label_bias", "prototypes", "class_correction", "learned_prior")


def variants(full: Mapping[str, Any]) -> dict[tuple[str, str], Parts]:
    """Settings of `Attention` by (group, name).

    Groups: `full` is the head as it is configured; `without` takes out one part that it has; `with` puts in one that
    it lacks; `alone` is one part and nothing else; `reference` is the historic form.
    """
    whole = {**NOTHING, **full}
    nothing = {**whole, **NOTHING}  # of the same size
    named = list(whole["features"])
    made: dict[tuple[str, str], Parts] = {("full", "full"): whole}

    def changed(group: str, name: str, base: Parts, **changes: Any) -> None:
        made[group, name] = {**base, **changes}

    for part in FEATURES:
        if part in named:
            rest = [name for name in named if name != part]
            changed("without", part, whole, features=rest, self_attention=whole["self_attention"] and bool(rest))
        else:
            changed("with", part, whole, features=[*named, part])
        changed("alone", part, nothing, features=[part])
    if named:
        changed("without", "all evidence", whole, features=[], self_attention=False)
    all_features = named or list(FEATURES)
    changed("alone", "all evidence", nothing, features=all_features)
    changed(
        "without" if whole["self_attention"] else "with",
        "self_attention",
        whole,
        features=all_features,
        self_attention=not whole["self_attention"],
    )
    for part in _SWITCHES:
        changed("without" if whole[part] else "with", part, whole, **{part: not whole[part]})
        changed("alone", part, nothing, **{part: True})
    if whole["prototypes"]:
        moved = whole["move_prototypes"]
        changed("without" if moved else "with", "move_prototypes", whole, move_prototypes=not moved)
    for part, off, on in (("temperature_bounds", [], HISTORIC["temperature_bounds"]), ("dropout", 0.0, DROPOUT)):
        changed("without" if whole[part] else "with", part, whole, **{part: off if whole[part] else on})
        changed("alone", part, nothing, **{part: whole[part] or on})
    if whole["heads"] > 1:
        changed("without", "heads", whole, heads=1)
    if whole["similarity"] != "bank":
        changed("without", whole["similarity"], whole, similarity="bank", heads=1)
    for similarity in ("l2", "dot"):
        if similarity != whole["similarity"]:
            changed("with", similarity, whole, similarity=similarity, heads=1)
        changed("alone", similarity, nothing, similarity=similarity)
    changed("alone", "temperature", nothing)
    changed("reference", "historic", {**nothing, **HISTORIC})
    return made


def _fitted(
    spaces: Sequence[EmbeddingSpace], k: int, bins: int, how: Mapping[str, Any], seed: int
) -> tuple[np.ndarray, dict[str, float]]:
    """A head's probabilities of the test rows, and its scores on the val rows of all spaces."""
    head, _ = fit_head(spaces, **how, seed=seed)
    on_test = classify_part(head, spaces[:1], TEST, k, how["device"])
    on_val = classify_part(head, spaces, VAL, k, how["device"])
    return on_test, metrics.scores(on_val, classes_of(spaces, VAL), bins)


def ablate(
    spaces: Sequence[EmbeddingSpace],
    repeats: int,
    k: int,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    scoring: Mapping[str, Any],
    seed: int,
    device: str,
    progress: Callable[[str], object] | None = None,
    workers: int = 1,
) -> Table:
    """Every variant of attention (`ablation.variants`), several heads each, against the full one or distance weighting.

    References are the retrieval head, whose own parts are taken out too (`READING`), the prototypes alone
    (`fit_prototypes`), and tuned distance weighting. Further variants put an objective in, or take it out where it is
    there (`OBJECTIVES`).
    Variants that learn one embedding space are fitted on the main embeddings alone; where there are folds, they are
    compared with the full head fitted so (`ONE_SPACE`).

    Args:
        k: neighbours that each head is fitted and evaluated with.

    Returns:
        Rows of variant, group, repeat, metric, validation, value, reference, difference, low, high, p. `validation` is
        the metric on the val rows, by which a part is chosen; all the rest is of the test rows. `alone` is compared
        with tuned distance weighting, `retrieval` with the whole retrieval head, everything else with the full head.
    """
    full = fitting["parts"]
    starts = {"temperatures": grids["temperatures"], "priors": grids["priors"], "k_train": k, "device": device}
    settings = {**fitting, **starts, "kind": "attention"}
    asked = {key: {**settings, "parts": parts} for key, parts in variants(full).items()}
    for name, (key, off, on) in OBJECTIVES.items():
        there = fitting[key] != off
        asked["without" if there else "with", name] = {**settings, key: off if there else on}
    asked["reference", "retrieval"] = reading = {**settings, "kind": "tabr"}
    for name, part in READING.items():
        asked["retrieval", f"retrieval without {name}"] = {**reading, "parts": {**full, part: False}}
    how = "without" if full["dropout"] else "with"
    dropout = {"dropout": 0.0 if full["dropout"] else DROPOUT}
    asked["retrieval", f"retrieval {how} dropout"] = {**reading, "parts": {**full, **dropout}}
    of_main = {key for key, how in asked.items() if learns_space(how["kind"], how["parts"])}
    if len(spaces) > 1:
        asked["reference", ONE_SPACE] = asked["full", "full"]
        of_main.add(("reference", ONE_SPACE))
    alone = fit_prototypes(spaces, grids["ridges"], device)
    main = spaces[:1]
    base = compare(spaces, {"prototypes": alone}, k, **grids, calibrations=("vector",), device=device)
    tuned = {name: found for name, found in scores(base.val, scoring["bins"]).items() if name in REFERENCES}
    cells = [(repeat, key) for repeat in range(repeats) for key in asked]
    calls = [
        partial(_fitted, main if key in of_main else spaces, k, scoring["bins"], asked[key], 100 * seed + repeat)
        for repeat, key in cells
    ]
    answered: dict[int, list[tuple[np.ndarray, dict[str, float]]]] = {repeat: [] for repeat in range(repeats)}
    for (repeat, key), found in zip(cells, run_parallel(calls, workers), strict=True):
        answered[repeat].append(found)
        if progress is not None:
            progress(" ".join(key))
    table: Table = []
    for repeat in range(repeats):
        groups: dict[str, str] = dict.fromkeys(REFERENCES, "reference")
        against = dict.fromkeys(groups, "full")
        on_val = dict(tuned)
        probs = {name: base.test.probs[base.test.methods.index(name)] for name in groups}
        for (group, part), (of_test, of_val) in zip(asked, answered[repeat], strict=True):
            name = f"{group} {part}" if group in ("without", "with", "alone") else part
            probs[name], on_val[name], groups[name] = of_test, of_val, group
            less = (group, part) in of_main and len(spaces) > 1 and name != ONE_SPACE  # rows than the full head has
            of_group = {"alone": "distance", "retrieval": "retrieval"}
            against[name] = of_group.get(group, ONE_SPACE if less else "full")
        stacked = dataclasses.replace(base.test, probs=np.stack(list(probs.values())), methods=tuple(probs))
        compared = [(name, reference) for name, reference in against.items() if name != reference]
        intervals, paired = intervals_and_tests(stacked, compared, **scoring, seed=seed, wanted=TESTED)
        value = {(row["method"], row["metric"]): row["value"] for row in intervals}
        itself = {"method": "full", "baseline": "full", "difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
        for row in [{**itself, "metric": metric} for metric in TESTED] + paired:
            name, metric = row["method"], row["metric"]
            table.append(
                {
                    "variant": name,
                    "group": groups[name],
                    "repeat": repeat,
                    "metric": metric,
                    "validation": on_val[name][metric],
                    "value": value[name, metric],
                    "reference": row["baseline"],
                    **{key: row[key] for key in ("difference", "low", "high", "p")},
                }
            )
    return table

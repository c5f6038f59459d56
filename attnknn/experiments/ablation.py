"""Ablation of the attention head: each part removed from the full head, each added to it, each alone."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from attnknn.core.artifacts import FIT, TEST, VAL
from attnknn.core.parallel import run_parallel
from attnknn.evaluation import metrics
from attnknn.evaluation.evaluate import compare
from attnknn.evaluation.paired_tests import TESTED, Table, intervals_and_tests, mean_over_repeats, scores
from attnknn.heads.attention import FEATURES
from attnknn.heads.classify import classify_part
from attnknn.heads.fit import fit_head, kept_start
from attnknn.heads.prototypes import fit_prototypes
from attnknn.heads.registry import learns_space
from attnknn.neighbours.space import EmbeddingSpace, classes_of

Parts = dict[str, Any]

# Distance weighting with a learned temperature, and no other part.
NOTHING: Parts = {
    "similarity": "bank",
    "heads": 1,
    "temperature_bounds": [],
    "features": [],
    "self_attention": False,
    "refine_keys": False,
    "label_bias": False,
    "prototypes": False,
    "move_prototypes": False,
    "linear": False,
    "hierarchical": False,
    "class_correction": False,
    "learned_prior": False,
    "dropout": 0.0,
}
# The head of the historic study: four heads of query-key products with bounded temperatures (initially .5, .05 … 2, so
# .1 … 4 times the initial value). Here it is trained, and starts as distance weighting; there the projections stayed
# random and their products were the only similarity.
HISTORIC: Parts = {"similarity": "dot", "heads": 4, "temperature_bounds": [0.1, 4.0], "learned_prior": True}
# Terms of the objective: argument of `fit_head`, its value when off, and when on.
OBJECTIVES = {
    "entropy": ("entropy_weight", 0.0, 0.01),  # weight of the historic study
    "label_smoothing": ("label_smoothing", 0.0, 0.05),
    "calibration": ("calibration_weight", 0.0, 1.0),
}
DROPOUT = 0.2
# Parts of `TabR`, by argument.
TABR_PARTS = {"shared key": "key", "label embedding": "label_embedding", "value correction": "correction"}
TABR_VALUE = "tabr with value projection"
ONE_SPACE = "full, without folds"
REFERENCES = ("distance", "distance_vector", "prototypes")  # fitted once
_SWITCHES = ("label_bias", "prototypes", "hierarchical", "class_correction", "learned_prior")
_NOT_NESTED = ("dropout", "temperature_bounds", "hard_queries", *OBJECTIVES)  # no parameter more or less
TRAINED, KEPT_START, NOT_TRAINED = "yes", "kept its start", "did not train"
_TOLERANCE = 1e-3  # nats


def variants(full: Mapping[str, Any]) -> dict[tuple[str, str], Parts]:
    """Settings of `Attention` by (group, name).

    Groups: `full` is the configured head; `without` removes one part that it has; `with` adds one that it lacks;
    `alone` is one part and nothing else; `reference` is the historic form.
    """
    full = {**NOTHING, **full}
    nothing = {**full, **NOTHING}  # of the same size
    features = list(full["features"])
    settings: dict[tuple[str, str], Parts] = {("full", "full"): full}

    def add(group: str, name: str, base: Mapping[str, Any], **changes: Any) -> None:
        settings[group, name] = {**base, **changes}

    def toggle(part: str, **changes: Any) -> None:
        add("without" if full[part] else "with", part, full, **changes)

    for part in FEATURES:
        if part in features:
            rest = [name for name in features if name != part]
            add("without", part, full, features=rest, self_attention=full["self_attention"] and bool(rest))
        else:
            add("with", part, full, features=[*features, part])
        add("alone", part, nothing, features=[part])
    if features:
        add("without", "all evidence", full, features=[], self_attention=False)
    all_features = features or list(FEATURES)
    add("alone", "all evidence", nothing, features=all_features)
    toggle("self_attention", features=all_features, self_attention=not full["self_attention"])
    for part in _SWITCHES:
        toggle(part, **{part: not full[part]})
        add("alone", part, nothing, **{part: True})
    if full["prototypes"]:
        toggle("move_prototypes", move_prototypes=not full["move_prototypes"])
    for part, off, on in (("temperature_bounds", [], HISTORIC["temperature_bounds"]), ("dropout", 0.0, DROPOUT)):
        toggle(part, **{part: off if full[part] else on})
        add("alone", part, nothing, **{part: full[part] or on})
    if full["heads"] > 1:
        add("without", "heads", full, heads=1)
    if full["similarity"] != "bank":
        add("without", full["similarity"], full, similarity="bank", heads=1, refine_keys=False)
    for similarity in ("l2", "dot"):
        if similarity != full["similarity"]:
            add("with", similarity, full, similarity=similarity, heads=1)
        add("alone", similarity, nothing, similarity=similarity)
    for part in ("refine_keys", "linear"):
        if full[part]:
            add("without", part, full, **{part: False})
    add("alone", "refine_keys", nothing, similarity="l2", refine_keys=True)
    add("alone", "temperature", nothing)
    add("reference", "historic", {**nothing, **HISTORIC})
    return settings


def nested_pairs(group: str, name: str, features: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (larger, smaller) of heads, by their names in the table, of which the larger contains the smaller.

    Args:
        features: of the full head.
    """
    if name in _NOT_NESTED:
        return []
    if group == "tabr" and name.endswith(tuple(TABR_PARTS)):
        return [("tabr", name), (TABR_VALUE, name)]
    if name == TABR_VALUE:
        return [(name, "tabr")]
    if group == "with":
        return [(f"with {name}", "full")]
    if group == "without":
        return [("full", f"without {name}")]
    pairs = []
    if group == "alone" or name == "historic":
        own = f"alone {name}" if group == "alone" else name
        pairs = [(own, "alone temperature")] * (name != "temperature")
        if name in (*features, "temperature", "all evidence"):
            pairs.append(("full", own))
        if name == "refine_keys":
            pairs.append((own, "alone l2"))
    return pairs


def _fit_and_score(
    spaces: Sequence[EmbeddingSpace], k: int, bins: int, settings: Mapping[str, Any], seed: int
) -> tuple[np.ndarray, dict[str, float], dict[str, float], bool]:
    """Fit a head; its probabilities of the test rows, its scores on fit and val rows, whether it kept its start."""
    head, history = fit_head(spaces, **settings, seed=seed)
    on_test = classify_part(head, spaces[:1], TEST, k, settings["device"])
    on_fit, on_val = (
        metrics.scores(classify_part(head, spaces, part, k, settings["device"]), classes_of(spaces, part), bins)
        for part in (FIT, VAL)
    )
    return on_test, on_fit, on_val, kept_start(history)


def training_states(rows: Table, kept: Mapping[str, bool], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Whether each head trained: a larger one must reach the NLL of a smaller one that it contains.

    `KEPT_START` where no epoch lowered its NLL on val rows; else `NOT_TRAINED` where its mean NLL on fit or val rows is
    higher than a smaller one's by more than its range over repeats and 1e-3.

    Args:
        rows: of variant, repeat, metric, fit, validation.
        kept: by variant, whether all repeats kept their start.
        pairs: (larger, smaller).
    """
    table = pd.DataFrame(rows)
    table = table[table["metric"] == "nll"].groupby("variant")[["fit", "validation"]]
    mean, spread = table.mean(), table.max() - table.min()
    states = dict.fromkeys(mean.index, TRAINED)
    for larger, smaller in pairs:
        excess = mean.loc[larger] - mean.loc[smaller] - spread.loc[larger].clip(lower=_TOLERANCE)
        if excess.to_numpy().max() > 0:
            states[larger] = NOT_TRAINED
    return states | {name: KEPT_START for name, kept_start in kept.items() if kept_start}


def ablate(
    spaces: Sequence[EmbeddingSpace],
    repeats: int,
    hard_weight: float,
    scoring: Mapping[str, Any],
    seed: int,
    k: int,
    fitting: Mapping[str, Any],
    grids: Mapping[str, Any],
    device: str,
    progress: Callable[..., Iterable[Any]] = lambda results, **_: results,
    workers: int = 1,
) -> Table:
    """Fit every variant of attention `repeats` times and compare it with the full head or with distance weighting.

    The variants are those of `variants`, and the objectives added or removed (`OBJECTIVES`). References are the
    TabR with its own ablation (`TABR_PARTS`), the prototypes alone, and tuned distance weighting. Variants
    with learned projections are fitted on the main embeddings alone; with folds, they are compared with the full head
    fitted likewise (`ONE_SPACE`).

    Args:
        hard_weight: `fit_head`'s, of the variant with more weight on queries whose neighbours disagree.
        k: neighbours that each head is fitted and evaluated with.

    Returns:
        Rows of variant, group, metric, fit and validation (the metric on fit and val rows), value, reference,
        difference, low, high, p (on test rows), over repeats as `paired_tests.mean_over_repeats`; and trained, see
        `training_states`. `alone` is compared with tuned distance weighting, `tabr` with the full TabR,
        everything else with the full head.
    """
    full = fitting["parts"]
    common: Parts = {**fitting, "temperatures": grids["temperatures"], "priors": grids["priors"]}
    common |= {"k_train": k, "device": device}
    attention: Parts = common | {"kind": "attention"}
    tabr_parts: Parts = {**full, "value": False}
    tabr: Parts = common | {"kind": "tabr", "parts": tabr_parts}
    settings: dict[tuple[str, str], Parts] = {
        key: attention | {"parts": parts} for key, parts in variants(full).items()
    }
    for name, (argument, off, on) in {"hard_queries": ("hard_weight", 1.0, hard_weight), **OBJECTIVES}.items():
        group, value = ("with", on) if fitting[argument] == off else ("without", off)
        settings[group, name] = attention | {argument: value}
    settings["reference", "tabr"] = tabr
    for name, part in TABR_PARTS.items():
        settings["tabr", f"tabr without {name}"] = tabr | {"parts": {**tabr_parts, part: False}}
    settings["tabr", TABR_VALUE] = tabr | {"parts": {**tabr_parts, "value": True}}
    group, value = ("without", 0.0) if full["dropout"] else ("with", DROPOUT)
    settings["tabr", f"tabr {group} dropout"] = tabr | {"parts": {**tabr_parts, "dropout": value}}
    on_main = {key for key, setting in settings.items() if learns_space(setting["kind"], setting["parts"])}
    if len(spaces) > 1:
        settings["reference", ONE_SPACE] = settings["full", "full"]
        on_main.add(("reference", ONE_SPACE))

    bins = scoring["bins"]
    prototypes = fit_prototypes(spaces, grids["ridges"], device)
    base = compare(spaces, {"prototypes": prototypes}, k, **grids, calibrations=("vector",), device=device)
    base_on_val = scores(base.val, bins)
    keys = list(product(range(repeats), settings))
    calls = [
        partial(_fit_and_score, spaces[:1] if key in on_main else spaces, k, bins, settings[key], 100 * seed + repeat)
        for repeat, key in keys
    ]
    results = dict(zip(keys, progress(run_parallel(calls, workers), total=len(calls)), strict=True))

    table: Table = []
    kept: dict[str, bool] = {}
    pairs: set[tuple[str, str]] = set()
    for repeat in range(repeats):
        groups: dict[str, str] = dict.fromkeys(REFERENCES, "reference")
        references: dict[str, str] = dict.fromkeys(REFERENCES, "full")
        on_val: dict[str, dict[str, float]] = {name: base_on_val[name] for name in REFERENCES}
        on_fit: dict[str, dict[str, float]] = {name: dict.fromkeys(TESTED, math.nan) for name in REFERENCES}
        probs: dict[str, np.ndarray] = {name: base.test.probs[base.test.methods.index(name)] for name in REFERENCES}
        for group, part in settings:
            name = f"{group} {part}" if group in ("without", "with", "alone") else part
            probs[name], on_fit[name], on_val[name], kept_now = results[repeat, (group, part)]
            kept[name] = kept.get(name, True) and kept_now
            groups[name] = group
            alone = (group, part) in on_main and len(spaces) > 1
            default = ONE_SPACE if alone and name != ONE_SPACE else "full"
            for larger, smaller in nested_pairs(group, part, full["features"]):
                if not alone or group == "tabr":  # all on the main space
                    pairs.add((larger, smaller))
                elif smaller == "full":  # fitted on the same rows
                    pairs.add((larger, ONE_SPACE))
            references[name] = {"alone": "distance", "tabr": "tabr"}.get(group, default)
        stacked = dataclasses.replace(base.test, probs=np.stack(list(probs.values())), methods=tuple(probs))
        against = [(name, reference) for name, reference in references.items() if name != reference]
        intervals, paired = intervals_and_tests(stacked, against, **scoring, seed=seed, metric_names=TESTED)
        values = {(row["method"], row["metric"]): row["value"] for row in intervals}
        itself = {"method": "full", "baseline": "full", "difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
        for row in [{**itself, "metric": metric} for metric in TESTED] + paired:
            name, metric = row["method"], row["metric"]
            columns = {"variant": name, "group": groups[name], "repeat": repeat, "metric": metric}
            columns |= {"fit": on_fit[name][metric], "validation": on_val[name][metric], "value": values[name, metric]}
            columns |= {"reference": row["baseline"]}
            table.append(columns | {key: row[key] for key in ("difference", "low", "high", "p")})
    states = training_states(table, kept, pairs)
    folded = mean_over_repeats(table, ("variant", "group", "metric"))
    return [row | {"trained": states[row["variant"]]} for row in folded]

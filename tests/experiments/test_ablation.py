"""Variants of the head differ in one part; the table has their scores and differences to a reference."""

import math
from typing import Any
from unittest import mock

import pytest
import torch

import synthetic
from attnknn.core.artifacts import TEST
from attnknn.evaluation.evaluate import compare
from attnknn.evaluation.paired_tests import TESTED, scores
from attnknn.experiments import ablation
from attnknn.experiments.ablation import (
    HISTORIC,
    KEPT_START,
    NOT_TRAINED,
    NOTHING,
    OBJECTIVES,
    ONE_SPACE,
    TABR_PARTS,
    TABR_VALUE,
    TRAINED,
    ablate,
    nested_pairs,
    training_states,
    variants,
)
from attnknn.heads.attention import FEATURES, Attention
from attnknn.heads.baselines import Distance
from attnknn.heads.fit import fit_head
from attnknn.heads.registry import learns_space
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import SCORING, blobs, crossfit_spaces, embedded, neighbourhood, relabelled

DEFAULT: dict[str, Any] = {**NOTHING, "features": list(FEATURES), "hidden": 8, "dropout": 0.1}
DEFAULT |= {"prototypes": True, "learned_prior": True}
EVERYTHING = DEFAULT | {"similarity": "dot", "heads": 4, "temperature_bounds": [0.1, 10.0]}
EVERYTHING |= {"self_attention": True, "label_bias": True, "class_correction": True}
L2 = {**DEFAULT, "features": ["gap"], "similarity": "l2", "refine_keys": True, "self_attention": True, "dropout": 0.0}
HEADS = {"default": DEFAULT, "everything": EVERYTHING, "l2": L2, "nothing": dict(NOTHING)}
# Parts that change with another.
REQUIRED = {"heads": "similarity", "refine_keys": "similarity", "self_attention": "features"}


def different(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    return {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


@pytest.mark.parametrize("full", [*HEADS.values(), {**L2, "linear": True}], ids=[*HEADS, "linear"])
def test_without_with_and_alone_change_one_part(full: dict[str, Any]) -> None:
    settings = variants(full)
    assert settings["full", "full"] == {**NOTHING, **full}
    for group, name in [key for key in settings if key[0] in ("without", "with")]:
        changed = different(settings[group, name], settings["full", "full"])
        followers = {follower for follower, leader in REQUIRED.items() if leader in changed}
        if name == "self_attention" and not full["features"]:
            followers = {"features"}
        assert len(changed - followers) == 1, (group, name, changed)
    for part in ("label_bias", "prototypes", "class_correction", "learned_prior", "self_attention"):
        group = "without" if full[part] else "with"
        assert settings[group, part][part] is not full[part]
        assert ("with" if full[part] else "without", part) not in settings
    for part in FEATURES:
        if part in full["features"]:
            assert set(settings["without", part]["features"]) == set(full["features"]) - {part}
        else:
            assert set(settings["with", part]["features"]) == {*full["features"], part}
    assert (("without", "all evidence") in settings) == bool(full["features"])
    assert (("without", "dropout") in settings) == bool(full["dropout"])
    assert (("without", full["similarity"]) in settings) == (full["similarity"] != "bank")
    assert (("without", "refine_keys") in settings) == full.get("refine_keys", False)
    assert (("without", "linear") in settings) == full.get("linear", False)
    alone = {name: parts for (group, name), parts in settings.items() if group == "alone"}
    nothing = alone.pop("temperature")
    assert nothing == {**full, **NOTHING}
    switches = {
        "label_bias",
        "prototypes",
        "hierarchical",
        "class_correction",
        "learned_prior",
        "temperature_bounds",
        "dropout",
    }
    projections = {"l2", "dot", "refine_keys"}
    assert set(alone) == {*FEATURES, "all evidence", *switches, *projections}, "self-attention needs evidence"
    assert different(alone.pop("refine_keys"), alone["l2"]) == {"refine_keys"}
    for name, parts in alone.items():
        assert len(different(parts, nothing)) == 1, name
    for name in FEATURES:
        assert alone[name]["features"] == [name]


def test_no_two_variants_are_the_same_head_and_the_configured_one_is_unchanged() -> None:
    settings = list(variants(DEFAULT).values())
    assert all(a != b for i, a in enumerate(settings) for b in settings[:i])
    full = {**EVERYTHING, "features": list(FEATURES)}
    for parts in variants(full).values():
        parts["features"] = []
    assert full["features"] == list(FEATURES)
    assert NOTHING["features"] == []


@pytest.mark.parametrize("full", HEADS.values(), ids=HEADS)
def test_attention_accepts_all_and_starts_each_as_distance_weighting(full: dict[str, Any]) -> None:
    n = neighbourhood(d=8)
    expected = Distance(11, 0.7, 0.1)(n)[0]
    for (_, name), parts in variants(full).items():
        torch.manual_seed(0)
        head = Attention(8, 3, 2, 0.7, 0.1, **parts).eval()
        torch.testing.assert_close(head(n)[0], expected, rtol=1e-5, atol=1e-6, msg=name)


def test_the_historic_form_is_four_heads_of_products_with_bounded_temperatures() -> None:
    historic = variants(DEFAULT)["reference", "historic"]
    assert different(historic, {**DEFAULT, **NOTHING}) == set(HISTORIC)
    assert (historic["similarity"], historic["heads"], len(historic["temperature_bounds"])) == ("dot", 4, 2)


FITTING = synthetic.FITTING | {"parts": {**DEFAULT, "features": ["gap", "agreement"]}}
# Temperatures and priors that are too high leave every head something to learn at once.
GRIDS: dict[str, Any] = {"ks": [1, 5], "temperatures": [3.0], "priors": [0.3, 0.5], "ridges": [0.1]}
Table = dict[tuple[str, str], dict[str, Any]]  # by variant and metric


@pytest.fixture(scope="module")
def spaces() -> list[EmbeddingSpace]:
    return crossfit_spaces(embedded(blobs(240, dim=8, noise=1.5)), k=15, sizes=(3, 15))


def run(spaces: list[EmbeddingSpace], repeats: int, **changes: Any) -> Table:
    table = ablate(spaces, repeats, 3.0, SCORING, 3, 12, {**FITTING, **changes}, GRIDS, "cpu")
    assert len({(r["variant"], r["metric"]) for r in table}) == len(table)
    return {(r["variant"], r["metric"]): r for r in table}


def recorded(spaces: list[EmbeddingSpace], **changes: Any) -> tuple[Table, list[Any]]:
    """The table of one repeat; and spaces, settings, head, history of each call of `fit_head`."""
    calls: list[Any] = []

    def fit(used: Any, **settings: Any) -> Any:
        calls.append((used, settings, *fit_head(used, **settings)))
        return calls[-1][2:]

    with mock.patch.object(ablation, "fit_head", fit):
        return run(spaces, 1, **changes), calls


@pytest.fixture(scope="module")
def spied(spaces: list[EmbeddingSpace]) -> tuple[Table, list[Any]]:
    return recorded(spaces)


@pytest.fixture(scope="module")
def table(spaces: list[EmbeddingSpace]) -> Table:
    return run(spaces, 2)


def test_rows_have_the_difference_from_their_reference(table: Table) -> None:
    groups = variants(FITTING["parts"])
    named = {part if group in ("full", "reference") else f"{group} {part}": group for group, part in groups}
    named |= dict.fromkeys(("tabr", "distance", "distance_vector", "prototypes"), "reference")
    named |= {f"with {name}": "with" for name in ("hard_queries", *OBJECTIVES)} | {ONE_SPACE: "reference"}
    named |= {f"tabr without {name}": "tabr" for name in (*TABR_PARTS, "dropout")}
    named["tabr with value projection"] = "tabr"
    assert set(table) == {(name, metric) for name in named for metric in TESTED}
    columns = "variant group metric fit validation value reference difference low high p trained"
    for (name, _), row in table.items():
        assert " ".join(row) == columns
        assert row["group"] == named[name]
        one_space = name in ("with l2", "with dot", "with move_prototypes", "historic", "tabr")
        by_group = {"alone": "distance", "tabr": "tabr"}
        assert row["reference"] == by_group.get(named[name], ONE_SPACE if one_space else "full")
    for (_, metric), row in table.items():
        expected = row["value"] - table[row["reference"], metric]["value"]
        assert row["difference"] == pytest.approx(expected, abs=1e-9)
        assert row["low"] <= row["high"]
        assert 0 < row["p"] <= 1


def test_validation_is_the_nll_on_val_rows(spaces: list[EmbeddingSpace], spied: Any) -> None:
    """The lowest of the fit, on all spaces, or on the main one for heads with learned projections."""
    table, calls = spied
    nll = [row for (_, metric), row in table.items() if metric == "nll"]
    fitted = [row["validation"] for row in nll if row["variant"] not in ablation.REFERENCES]
    assert fitted == pytest.approx([min(row["val_nll"] for row in history) for *_, history in calls])
    assert all(row["validation"] != row["value"] for row in nll)
    expected = scores(compare(spaces, {}, 12, **GRIDS, calibrations=("vector",)).val, SCORING["bins"])
    for name in ("distance", "distance_vector"):
        for metric in TESTED:
            assert table[name, metric]["validation"] == expected[name][metric]


def test_variants_differ_from_their_reference_and_not_from_themselves(table: Table) -> None:
    same = [name for (name, metric), row in table.items() if metric == "nll" and not row["difference"]]
    tabr = {name for name in same if name.startswith("tabr ")}
    assert len(tabr) in (0, len(TABR_PARTS) + 2), "all, if the full one does not learn in two epochs"
    assert [name for name in same if name not in tabr] == ["full"]
    for metric in TESTED:
        row = table["full", metric]
        assert (row["difference"], row["low"], row["high"], row["p"]) == (0, 0, 0, 1)


def test_fault_17_a_head_worse_than_one_it_contains_did_not_train() -> None:
    """On fit rows or on val rows, beyond the range of its repeats; the larger head is marked, not the smaller."""
    nll = {  # fit and val rows, two repeats each
        "full": [(0.30, 0.40), (0.30, 0.40)],
        "with l2": [(0.30, 0.45), (0.30, 0.43)],
        "with dot": [(0.28, 0.39), (0.28, 0.43)],
        "with dropout": [(0.50, 0.60), (0.50, 0.60)],
        "without gap": [(0.32, 0.40), (0.32, 0.42)],
        "alone gap": [(0.41, 0.40), (0.41, 0.41)],
        "alone temperature": [(0.40, 0.50), (0.40, 0.50)],
    }
    groups = [name.split(" ", 1) for name in nll if " " in name]
    pairs = [pair for group, name in groups for pair in nested_pairs(group, name, ["gap"])]
    assert set(pairs) == {
        ("with l2", "full"),
        ("with dot", "full"),
        ("full", "without gap"),
        ("alone gap", "alone temperature"),
        ("full", "alone gap"),
        ("full", "alone temperature"),
    }

    def states(**kept: bool) -> dict[str, str]:
        rows = [
            {"variant": name, "repeat": i, "metric": "nll", "fit": fit, "validation": val}
            for name, values in nll.items()
            for i, (fit, val) in enumerate(values)
        ]
        return training_states(rows, kept, pairs)

    expected = dict.fromkeys(nll, TRAINED) | {"with l2": NOT_TRAINED, "alone gap": NOT_TRAINED}
    assert states() == expected, "the repeats of with dot are as far apart"
    assert states(full=True) == expected | {"full": KEPT_START}
    nll["without gap"] = [(0.25, 0.40), (0.25, 0.42)]
    assert states() == expected | {"full": NOT_TRAINED}


def test_fault_17_a_tabr_worse_than_one_with_a_part_less_did_not_train() -> None:
    nll = {"tabr": 0.3, "tabr without shared key": 0.4, "tabr without label embedding": 0.4, TABR_VALUE: 0.35}
    pairs = [pair for name in (*nll, "tabr with dropout") for pair in nested_pairs("tabr", name, [])]
    assert len(pairs) == 5
    for smaller, state in ((0.4, TRAINED), (0.2, NOT_TRAINED)):
        nll["tabr without label embedding"] = smaller
        rows = [{"variant": v, "repeat": 0, "metric": "nll", "fit": x, "validation": 0.3} for v, x in nll.items()]
        states = training_states(rows, {}, pairs)
        assert states == dict.fromkeys(nll, TRAINED) | {"tabr": state, TABR_VALUE: NOT_TRAINED}


def test_references_are_fitted_once_and_heads_anew_in_each_repeat(table: Table, spied: Any) -> None:
    for name in ("distance", "distance_vector", "prototypes"):
        assert math.isnan(table[name, "nll"]["fit"])
        assert table[name, "nll"]["value"] == spied[0][name, "nll"]["value"]
    for name in ("full", "without prototypes", "alone temperature", "historic"):
        assert table[name, "nll"]["value"] != spied[0][name, "nll"]["value"]


def test_heads_with_learned_projections_are_fitted_on_the_main_space(spaces: list[EmbeddingSpace], spied: Any) -> None:
    n_spaces: dict[bool, list[int]] = {True: [], False: []}
    for used, settings, *_ in spied[1]:
        assert used[0] is spaces[0]
        n_spaces[learns_space(settings["kind"], settings["parts"])].append(len(used))
    assert set(n_spaces[True]) == {1}
    assert n_spaces[False].count(1) == 1, "the full head without folds"
    weights = [settings["hard_weight"] for _, settings, *_ in spied[1]]
    assert sorted(weights) == [1.0] * (len(weights) - 1) + [3.0], "one variant weights hard queries"


def test_the_variants_of_a_configured_tabr_are_those_of_attention(spaces: list[EmbeddingSpace]) -> None:
    kinds = [settings["kind"] for _, settings, *_ in recorded(spaces, kind="tabr", epochs=0)[1]]
    tabr = 1 + len(TABR_PARTS) + 2  # full, without each part, with a value projection, and with dropout
    assert kinds.count("tabr") == tabr
    assert len(kinds) == len(variants(FITTING["parts"])) + 1 + len(OBJECTIVES) + tabr + 1, "and without folds"


def test_fault_4_test_labels_change_no_fit(spaces: list[EmbeddingSpace]) -> None:
    """With other test labels every head learns the same, epoch by epoch."""
    (_, ours), (_, theirs) = (recorded([one], epochs=1) for one in (spaces[0], relabelled(spaces[0], TEST)))
    for (_, _, head, history), (_, _, other_head, other_history) in zip(ours, theirs, strict=True):
        assert history == other_history
        for one, other in zip(head.state_dict().values(), other_head.state_dict().values(), strict=True):
            assert torch.equal(one, other)
        assert history[0]["val_nll"] != history[1]["val_nll"], "they do learn"

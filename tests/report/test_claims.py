"""Claims from paired comparisons: every verdict can be no, and the headline follows the numbers."""

import math

import numpy as np
import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.report import claims as claimed
from attnknn.report.answers import answer, answers, beyond, headline, overall, underpowered
from attnknn.report.claims import Claim, combined_p, holm, smallest_p
from attnknn.report.section import Cell
from attnknn.report.sections.evaluate import claim_rows
from attnknn.report.tables import fixed, p_value


def paired(
    dataset: str = "digits",
    seed: int = 0,
    gain: float = 0.1,
    p: float = 1e-6,
    errors: int = 100,
    against: dict[str, float] | None = None,
    condition: str = "clean",
    repeat: int = 0,
) -> pd.DataFrame:
    """Rows in which attention is better by `gain` (NLL and ECE lower, accuracy higher) than every baseline."""
    gains = against or {"uniform": 2 * gain, "distance": 1.5 * gain, "distance_vector": gain}
    gains = {"linear": gain, **gains}
    run = {"dataset": dataset, "condition": condition, "seed": seed, "repeat": repeat, "method": "attention"}
    rows = []
    for baseline, by in gains.items():
        for metric, sign in (("accuracy", 1), ("nll", -1), ("ece", -1)):
            d = sign * by
            row = {**run, "baseline": baseline, "metric": metric, "difference": d, "errors": errors, "p": p}
            rows.append({**row, "low": d - 0.01, "high": d + 0.01})
    return pd.DataFrame(rows)


def on_val(rows: pd.DataFrame, best: str = "distance_vector") -> pd.DataFrame:
    """Validation scores for the same runs and baselines; `best` is best in every metric."""
    known = rows[["dataset", "condition", "seed", "repeat", "baseline", "metric"]].rename(
        columns={"baseline": "method"}
    )
    good = (known["method"] == best) == (known["metric"] == "accuracy")
    return known.assign(value=np.where(good, 0.9, 0.1))


def claims(rows: pd.DataFrame, best: str = "distance_vector", alpha: float = 0.01) -> list[Claim]:
    return claimed.claims(rows, on_val(rows, best), alpha)


def test_where_hardly_a_row_is_wrong_nothing_is_decided() -> None:
    assert {c.verdict for c in claims(paired(errors=20))} == {"yes"}
    assert {c.verdict for c in claims(paired(errors=19))} == {"undecided"}
    seeds = pd.concat([paired(seed=0, errors=50), paired(seed=1, errors=3)])
    assert {(c.errors, c.verdict) for c in claims(seeds)} == {(3, "undecided")}


def test_where_p_is_counted_and_claims_are_many_the_page_says_that_none_can_be_decided() -> None:
    """Of n claims the smallest p that R resamples leave is n · 2/(R + 1), twice that for two runs together."""
    open_ = claims(paired(errors=399, p=0.002))
    assert {c.verdict for c in open_} == {"undecided"}
    (line,) = underpowered(open_, 999)
    assert line.startswith(
        f"Underpowered for NLL on digits, among {len(open_)} claims: with fewer than 400 errors, 999 "
    )
    enough = 200 * len(open_)
    assert underpowered(open_, enough - 1) != [], "n · 2/(R + 1) is .01, not below"
    assert underpowered(open_, enough) == []
    assert underpowered(claims(paired(errors=400, p=0.002)), 999) == []
    runs = claims(pd.concat([paired(repeat=0, errors=399, p=0.002), paired(repeat=1, errors=399, p=0.002)]))
    assert underpowered(runs, 2 * enough - 1) != []
    assert underpowered(runs, 2 * enough) == []


def test_what_is_decided_was_in_reach() -> None:
    """Holm multiplies the smallest p by the number of claims, and later ones by less."""
    small = paired("iris", errors=399, p=0.002)
    result = claims(pd.concat([paired("digits", p=1e-12), small]), alpha=0.05)
    assert {c.verdict for c in result} == {"yes"}
    assert len(result) * 0.002 > 0.01
    assert underpowered(result, 999) == []


def test_too_few_errors_are_told_whatever_the_resamples() -> None:
    (line,) = underpowered(claims(paired(errors=19)), 10**9)
    assert line == "No verdict on digits: fewer than 20 errors."
    assert underpowered(claims(paired(errors=20)), 10**9) == []


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "yes"), (-0.1, "no")])
def test_better_is_yes_and_worse_is_no_in_every_metric(gain: float, expected: str) -> None:
    result = claims(paired(against={"uniform": 3 * gain, "distance_vector": gain, "linear": gain}))
    assert {c.verdict for c in result} == {expected}
    assert answer(result) == expected


def test_undecided_from_alpha_upwards() -> None:
    """Fault 12: differences read as findings without a test.

    Three metrics against two baselines are six claims, so Holm takes the smallest p six times.
    """
    assert {c.verdict for c in claims(paired(p=0.01 / 6 + 1e-9))} == {"undecided"}
    assert {c.verdict for c in claims(paired(p=0.01 / 6 - 1e-9))} == {"yes"}
    assert {c.verdict for c in claims(paired(p=0.04 / 6), alpha=0.05)} == {"yes"}


def test_more_settings_make_each_claim_of_their_family_harder() -> None:
    assert {c.verdict for c in claims(paired(p=0.0015))} == {"yes"}
    for key in ("dataset", "condition"):
        ten = pd.concat([paired(**{key: f"d{i}"}, p=0.0015) for i in range(10)])
        assert {c.verdict for c in claims(ten)} == {"undecided"}


def test_the_clean_memory_is_a_family_of_its_own() -> None:
    """However many conditions are tried beside it, and however open their claims are: six and 60 claims."""
    noisy = [paired(condition=f"noise {i}", p=0.0015) for i in range(10)]
    result = claims(pd.concat([noisy[0], paired(p=0.0015), *noisy[1:]]))
    by = {primary: [c for c in result if c.primary == primary] for primary in (True, False)}
    assert {(c.condition, c.verdict) for c in by[True]} == {("clean", "yes")}
    assert [c.p for c in by[True]] == pytest.approx([6 * 0.0015] * 6)
    assert [c.p for c in by[False]] == pytest.approx([60 * 0.0015] * 60)
    assert answers(result)["digits", "clean"] == "yes"


def test_what_is_too_coarse_is_counted_in_its_own_family() -> None:
    """Six clean claims need 1200 resamples, twelve under conditions 2400."""
    rows = [paired(condition=name, errors=399, p=0.01) for name in ("clean", "noise 0.3", "noise 0.6")]
    result = claims(pd.concat(rows))
    (both,) = underpowered(result, 1199)
    assert "digits (clean), among 6 claims, and on digits (noise 0.3, noise 0.6), among 12 claims: " in both
    (one,) = underpowered(result, 1200)
    assert "NLL on digits (noise 0.3, noise 0.6), among 12 claims: " in one
    assert underpowered(result, 2400) == []


def test_the_best_baseline_is_chosen_on_validation_rows_whatever_the_test_rows_say() -> None:
    """On test rows uniform is by far the hardest to beat; validation rows say distance + isotonic, and that is it."""
    rows = paired(against={"uniform": -9.0, "distance_isotonic": 0.1, "distance_vector": 0.2, "linear": -5.0})
    result = [(c.metric, c.baseline, c.roles) for c in claims(rows, best="distance_isotonic")]
    assert result == [
        (metric, baseline, roles)
        for metric in ("nll", "accuracy", "ece")
        for baseline, roles in (
            ("distance_isotonic", ("best tuned",)),
            ("distance_vector", ("to beat",)),
            ("linear", ("without neighbours",)),
        )
    ]


@pytest.mark.parametrize("best", ["linear", "attention_vector", "prototypes"])
def test_only_a_voting_baseline_can_be_the_best_tuned(best: str) -> None:
    rows = paired(against={"uniform": 0.2, "distance_vector": 0.1, best: 0.1})
    names = {c.baseline for c in claims(rows, best) if "best tuned" in c.roles}
    assert names <= {"uniform", "distance_vector"}


@pytest.mark.parametrize("best", ["prototypes", "prototypes_isotonic", "linear", "linear_vector"])
def test_the_best_without_neighbours_is_chosen_on_validation_rows_and_does_not_change_the_answer(best: str) -> None:
    others = {"prototypes": 0.4, "linear_temperature": 0.5}
    rows = paired(against={"uniform": 0.2, "distance_vector": 0.1, **others, best: -0.3})
    result = claims(rows, best)
    assert [(c.baseline, c.verdict) for c in result if c.metric == "nll" and c.roles == ("without neighbours",)] == [
        (best, "no")
    ]
    assert answer(result) == "yes"
    assert "its NLL is worse on digits; its accuracy is worse on digits." in beyond(result)
    assert headline(result, 50)[0].endswith(
        "it is worse than these in no metric; but a classifier without neighbours is better in NLL on digits, "
        "and in accuracy on digits."
    )


def test_seeds_must_agree_in_sign_whatever_p() -> None:
    for key in ("seed", "repeat"):
        agree = pd.concat([paired(**{key: 0}, gain=0.1), paired(**{key: 1}, gain=0.2)])
        assert {c.verdict for c in claims(agree)} == {"yes"}
        differ = pd.concat([paired(**{key: 0}, gain=0.5), paired(**{key: 1}, gain=-0.01)])
        assert {c.verdict for c in claims(differ)} == {"undecided"}


def test_runs_are_combined_as_twice_the_mean_p() -> None:
    for key in ("seed", "repeat"):
        first, *_ = claims(pd.concat([paired(**{key: 0}, gain=0.1, p=0.001), paired(**{key: 1}, gain=0.3, p=0.003)]))
        assert first.p == pytest.approx(6 * 2 * 0.002)
        assert first.difference == pytest.approx(-0.2)
        assert first.sd == pytest.approx(0.2 / math.sqrt(2))
        assert (first.low, first.high) == (pytest.approx(-0.31), pytest.approx(-0.09))
        assert first.runs == 2


def test_no_difference_is_never_decided() -> None:
    assert {c.verdict for c in claims(paired(gain=0.0, p=0.0))} == {"undecided"}


def test_a_lower_nll_that_costs_accuracy_is_no() -> None:
    result = claims(paired().assign(difference=-0.1))
    assert {c.metric: c.verdict for c in result} == {"nll": "yes", "accuracy": "no", "ece": "yes"}
    assert answer(result) == "no"


def test_every_condition_has_its_own_answer_and_the_worst_is_the_datasets() -> None:
    rows = pd.concat([paired(), paired(condition="noise 0.3", gain=-0.1), paired("iris")])
    result = claims(rows)
    assert answers(result) == {("digits", "clean"): "yes", ("digits", "noise 0.3"): "no", ("iris", "clean"): "yes"}
    assert [overall(v) for v in (["yes", "no"], ["yes", "undecided"], ["yes", "yes"])] == ["no", "undecided", "yes"]
    lines = headline(result, 50)
    assert lines[0].startswith("Learned attention does not pay on digits (noise 0.3): ")
    assert lines[1].startswith("Against kNN, learned attention pays on digits (clean) and iris: ")


def test_a_yes_is_against_knn_and_names_where_nothing_but_knn_is_beaten() -> None:
    """What does without neighbours is better in accuracy on iris alone, and level in NLL."""
    rows = [paired("digits"), paired("iris")]
    beaten = (rows[1]["baseline"] == "linear") & (rows[1]["metric"] == "accuracy")
    level = (rows[1]["baseline"] == "linear") & (rows[1]["metric"] == "nll")
    rows[1]["difference"] = rows[1]["difference"].mask(beaten, -0.1).mask(level, 0.0)
    result = claims(pd.concat(rows))
    assert headline(result, 20)[0] == (
        "Against kNN, learned attention pays on digits and iris: its NLL is lower than the best tuned kNN's, with at "
        "most 20 neighbours, and than that of distance weighting with vector scaling, and it is worse than these in no "
        "metric; but a classifier without neighbours is better in accuracy on iris."
    )
    assert "its NLL is not clearly different on iris; better on digits; its accuracy is worse on iris." in beyond(
        result
    )
    assert "without neighbours" not in headline(claims(rows[0]), 20)[0]


def test_the_first_words_are_where_attention_does_not_win() -> None:
    rows = pd.concat([paired("adult"), paired("digits", gain=-0.1), paired("iris", gain=0.0)])
    *lines, rest = headline(claims(rows), 50)
    assert [words.split(":")[0].rstrip(".") for words in lines] == [
        "Learned attention does not pay on digits",
        "Learned attention does not clearly win on iris",
        "Against kNN, learned attention pays on adult",
    ]
    assert rest.startswith("The verdicts are based on one trained encoder per dataset;")


def test_a_no_names_the_metric_and_the_baseline() -> None:
    """NLL is lost to distance + vector scaling everywhere, accuracy to uniform on iris alone."""

    def with_accuracy(dataset: str, gain: float) -> pd.DataFrame:
        rows = paired(dataset, against={"uniform": 0.2, "distance_vector": -0.1})
        move = (rows["baseline"] == "uniform") & (rows["metric"] == "accuracy")
        rows.loc[rows["metric"] == "accuracy", "difference"] = 0.1
        return rows.assign(difference=rows["difference"].mask(move, gain))

    rows = pd.concat([with_accuracy("iris", -0.1), with_accuracy("digits", 0.1), paired("adult")])
    result = claims(rows, best="uniform")
    assert headline(result, 50)[0] == (
        "Learned attention does not pay on iris and digits: its NLL is worse than that of Distance + vector scaling; "
        "its accuracy is worse than that of Uniform kNN on iris."
    )


def test_the_headline_counts_encoders_and_not_repeats() -> None:
    repeats = pd.concat([paired(repeat=0), paired(repeat=1)])
    assert headline(claims(repeats), 50)[-1].startswith("The verdicts are based on one trained encoder per dataset;")
    seeds = pd.concat([paired(seed=seed) for seed in (0, 1, 2)])
    assert headline(claims(seeds), 50)[-1] == "The verdicts are based on 3 trained encoders per dataset."
    mixed = headline(claims(pd.concat([seeds, paired("iris")])), 50)[-1]
    assert mixed.startswith("The verdicts are based on one trained encoder on iris and 3 trained encoders on digits;")


@pytest.mark.parametrize(("gain", "word"), [(-0.1, "worse"), (0.1, "better"), (0.0, "not clearly different")])
def test_the_plain_network_has_a_role_of_its_own_and_does_not_change_the_answer(gain: float, word: str) -> None:
    """It is better than attention on the clean memory; the conditions of the memory have no row of it."""
    others = {"uniform": 0.2, "distance_vector": 0.1}
    clean = paired(against={**others, "cnn": 0.5, "cnn_vector": gain})
    noisy = paired(condition="noise 0.3", against=others)
    rows = pd.concat([clean, noisy, paired("adult")])
    val = on_val(rows)
    best = np.where(val["metric"] == "accuracy", 0.95, 0.05)
    val["value"] = val["value"].mask(val["method"] == "cnn_vector", best)
    result = claimed.claims(rows, val)
    mine = [c for c in result if "plain network" in c.roles]
    assert [(c.setting, c.baseline) for c in mine] == [(("digits", "clean"), "cnn_vector")] * 3
    assert set(answers(result).values()) == {"yes"}
    text = beyond(result)
    assert "Against the plain network, the same backbone trained to classify" in text
    ends = f"{fixed(-gain, 4, True)}, interval {fixed(-gain - 0.01, 4, True)} … {fixed(-gain + 0.01, 4, True)}, p "
    assert f"its NLL is {word} on digits, clean ({ends}" in text
    assert "There is no plain network to compare with on adult." in text
    without = claims(pd.concat([paired(against=others), noisy, paired("adult")]))
    assert len(result) == len(without) + 3
    primary = [[c.p for c in family if c.primary] for family in (result, without)]
    assert min(primary[0]) == pytest.approx(min(primary[1]) * len(primary[0]) / len(primary[1]))
    assert [c.p for c in result if not c.primary] == [c.p for c in without if not c.primary]


def test_a_claim_of_fewer_runs_than_its_setting_says_so() -> None:
    """Heads are fitted again in every repeat, the plain network is scored once."""
    rows = pd.concat([paired(against={"uniform": 0.2, "distance_vector": 0.1, "cnn": 0.1}), paired(repeat=1)])
    group, *lines = claim_rows(claims(rows), {"digits": 3}).rows
    assert group == ["digits, clean, 2 runs"]
    around = {line[1].value: line[1].around for line in lines if isinstance(line[1], Cell)}
    assert around["Plain network"] == "plain network, 1 run"
    assert around["Distance + vector scaling"] == "best tuned, to beat"


def test_without_any_plain_network_the_page_says_so() -> None:
    assert beyond(claims(paired())).endswith("There is no plain network to compare with on digits.")


def test_the_smallest_p_is_what_counting_leaves() -> None:
    assert smallest_p(1, 99) == pytest.approx(0.02)
    assert smallest_p(2, 99) == pytest.approx(combined_p([0.02, 0.02])) == pytest.approx(0.04)


def test_a_missing_baseline_is_told() -> None:
    rows = paired(against={"uniform": 0.1})
    with pytest.raises(InputError, match="digits, clean has no nll row against distance_vector"):
        claims(rows, "uniform")
    with pytest.raises(InputError, match="validation: digits, clean has no row"):
        claimed.claims(paired(), on_val(paired("iris")))


@pytest.mark.parametrize(
    ("value", "sign", "text"), [(-0.12345, False, "−0.123"), (0.5, True, "+0.500"), (-0.0001, True, "0.000")]
)
def test_numbers(value: float, sign: bool, text: str) -> None:
    assert fixed(value, 3, sign) == text


def test_p_values() -> None:
    assert [p_value(p) for p in (0.0001, 0.0123, 1.0)] == ["< .001", ".012", "1"]


def test_many_conditions_are_counted_and_few_are_named() -> None:
    lost = paired(gain=-0.1)
    five = [paired(condition=f"noise {i}") for i in range(5)]
    assert headline(claims(pd.concat([lost, *five])), 50)[1].startswith(
        "Against kNN, learned attention pays on digits (5 of 6 cond"
    )
    named = headline(claims(pd.concat([lost, *five[:4]])), 50)[1]
    assert named.startswith("Against kNN, learned attention pays on digits (noise 0, noise 1, noise 2, noise 3): ")


def test_on_a_tie_the_best_tuned_is_the_baseline_to_beat() -> None:
    rows = paired(against={"uniform": 0.2, "distance_isotonic": 0.2, "distance_vector": 0.1})
    result = claimed.claims(rows, on_val(rows).assign(value=0.5))
    assert {c.roles for c in result if c.baseline == "distance_vector"} == {("best tuned", "to beat")}

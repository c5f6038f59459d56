"""The historic study: stored numbers, conclusions that depend on ours, and the section."""

import dataclasses
from typing import Any

import pandas as pd
import pytest

from attnknn.evaluation.paired_tests import intervals_and_tests, pairs
from attnknn.report import historic
from attnknn.report.conclusions import conclusions
from attnknn.report.differences import Level
from attnknn.report.historic import CIFAR10, EXPERIMENTS, IRIS
from attnknn.report.results import Run
from attnknn.report.sections import theory
from attnknn.report.sections.historic import TABLES, ours, section
from import_closure import ROOT
from synthetic_results import LOSS, TIE, WIN, Strengths, predictions

METRICS = ("accuracy", "nll", "ece")
LEVEL = Level(0.01, 2000)
PNG = b"\x89PNG"


def stored(experiment: str, table: str, x: float, method: str, metric: str) -> tuple[float, ...]:
    (values,) = (
        n.values
        for n in CIFAR10
        if (n.experiment, n.table, n.x, n.method, n.metric) == (experiment, table, x, method, metric)
    )
    return values


def a_run(tables: dict[str, pd.DataFrame], dataset: str = "cifar10_jpeg", seed: int = 42) -> Run:
    return Run(dataset, seed, {"prepare": {"bank": 40_000, "test": 10_000}}, tables)


def compared(strengths: Strengths, rows: int = 2000) -> dict[str, pd.DataFrame]:
    """`intervals` and `paired` of made-up predictions, by the project's own scoring."""
    probs = predictions(strengths, rows)
    tables = intervals_and_tests(probs, pairs(probs.methods), 15, 500, 0.95, 0)
    return dict(zip(("intervals", "paired"), map(pd.DataFrame, tables), strict=True))


def difference(metric: str, value: float, half: float, p: float, errors: int = 500, **where: Any) -> dict[str, Any]:
    return {
        "metric": metric,
        "difference": value,
        "low": value - half,
        "high": value + half,
        "errors": errors,
        "p": p,
        **where,
    }


def verdicts(*runs: Run, resamples: int = 2000) -> dict[str, str]:
    return {c.name: c.verdict for c in conclusions(runs, Level(0.01, resamples))}


def one(name: str, **tables: list[dict[str, Any]]) -> str:
    """The verdict on one conclusion from tables as rows; "" where it is left out."""
    return verdicts(a_run({table: pd.DataFrame(rows) for table, rows in tables.items()})).get(name, "")


def numbers(name: str, *runs: Run, resamples: int = 2000) -> str:
    """The numbers of one conclusion."""
    (text,) = (c.numbers for c in conclusions(runs, Level(0.01, resamples)) if c.name == name)
    return text


# The numbers


def test_the_presets_are_the_experiments() -> None:
    presets = {path.stem for path in (ROOT / "presets").glob("*.yaml")}
    assert sorted(name for names in EXPERIMENTS.values() for name in names) == sorted(presets - {"none"})


def test_every_number_stands_once_and_is_a_score() -> None:
    for study in (CIFAR10, IRIS):
        keys = [dataclasses.replace(n, values=(), source="") for n in study]
        assert len(set(keys)) == len(keys)
    for n in (*CIFAR10, *IRIS):
        assert n.experiment in EXPERIMENTS
        assert n.source
        for value in n.values:
            assert 0 < value < (3 if n.metric == "nll" else 1)


@pytest.mark.parametrize("experiment", ["1–3", "4"])
@pytest.mark.parametrize("method", historic.METHODS)
def test_the_tables_of_an_experiment_agree_where_they_meet(experiment: str, method: str) -> None:
    """k 10 of the sweep, no noise and no tail are the main comparison again: a slip of the pen shows."""
    main = stored(experiment, "main", 0, method, "accuracy")
    assert stored(experiment, "k_sweep", 10, method, "accuracy") == main
    assert stored(experiment, "noise", 0.0, method, "accuracy") == main
    if experiment == "4":
        assert stored(experiment, "imbalance", 1.0, method, "accuracy") == main
    else:
        assert stored(experiment, "k_sweep", 10, method, "ece") == stored(experiment, "main", 0, method, "ece")


def test_at_one_neighbour_all_methods_are_one() -> None:
    for experiment in ("1–3", "4", "5"):
        assert len({stored(experiment, "k_sweep", 1, method, "accuracy") for method in historic.METHODS}) == 1


def test_numbers_that_the_documents_give_differently_carry_both() -> None:
    assert stored("1–3", "main", 0, "uniform", "nll") == (0.8193, 1.021)
    assert stored("1–3", "main", 0, "attention", "nll") == (0.8193, 1.025)
    assert stored("5", "main", 0, "attention_tta", "ece") == (0.0283,)


# The conclusions


def test_conclusions_flip_with_the_numbers() -> None:
    """Fault 13: the same words, three verdicts."""
    win, loss = verdicts(a_run(compared(WIN))), verdicts(a_run(compared(LOSS)))
    assert (win["attention outperforms in accuracy"], loss["attention outperforms in accuracy"]) == (
        "supported",
        "contradicted",
    )
    few = verdicts(a_run(compared(TIE, rows=60)))
    assert few["attention outperforms in accuracy"] == "underpowered"


@pytest.mark.parametrize(
    ("value", "half", "p", "errors", "expected"),
    [
        (0.02, 0.005, 0.0001, 500, "supported"),
        (-0.02, 0.005, 0.0001, 500, "contradicted"),
        (0.0, 0.002, 0.9, 500, "contradicted"),  # no gain of .003 is left
        (0.0, 0.02, 0.9, 500, "undecided"),
        (0.0, 0.0, 1.0, 2, "underpowered"),  # two wrong rows rule nothing out
        (0.02, 0.005, 0.0001, 2, "underpowered"),
    ],
)
def test_a_gain_is_shown_ruled_out_or_open(value: float, half: float, p: float, errors: int, expected: str) -> None:
    bases = ("uniform", "distance")
    rows = [difference("accuracy", value, half, p, errors, method="attention", baseline=b) for b in bases]
    assert one("attention outperforms in accuracy", paired=rows) == expected


def ablated(variant: str, reference: str, moves: dict[str, tuple[float, ...]], wrong: int = 500) -> list[dict]:
    """Rows of the ablation: difference, half an interval and p by metric, and accuracy's value of 10,000 rows."""
    columns = {"variant": variant, "reference": reference, "value": 1 - wrong / 10_000}
    moves = {"accuracy": (0.0, 0.0, 1.0), **moves}
    return [difference(metric, value, half, p) | columns for metric, (value, half, p) in moves.items()]


@pytest.mark.parametrize(
    ("value", "half", "p", "wrong", "expected"),
    [
        (-0.02, 0.01, 0.0001, 500, "supported"),
        (0.02, 0.01, 0.0001, 500, "contradicted"),
        (-0.0003, 0.001, 0.4, 500, "contradicted"),  # no gain of .003 is left
        (-0.004, 0.003, 0.02, 500, "undecided"),
        (-0.02, 0.01, 0.0001, 19, "underpowered"),
    ],
)
def test_a_learned_temperature_is_judged_alone_and_not_by_the_whole_head(
    value: float, half: float, p: float, wrong: int, expected: str
) -> None:
    name = "a learned temperature calibrates"
    rows = ablated("alone temperature", "distance", {"ece": (value, half, p)}, wrong)
    whole = [difference("ece", -9 * value, half, 0.0001, method="attention", baseline=b) for b in historic.METHODS]
    assert one(name, ablation=rows + ablated("full", "full", {}), paired=whole) == expected
    assert one(name, paired=whole) == ""


@pytest.mark.parametrize(
    ("mine", "half", "expected"),
    [
        (0.05, 0.002, "contradicted"),  # it loses .05 to the whole head, distance weighting .08
        (0.09, 0.002, "supported"),
        (0.08, 0.002, "supported"),  # .004 either way: no gain of .01 is left
        (0.073, 0.004, "undecided"),  # −.007 ± .008: the widths are added
        (0.08, 0.005, "underpowered"),  # ± .01 would leave one open, wherever it is
        (0.05, 0.005, "contradicted"),
    ],
)
def test_attention_alone_is_the_studys_form_and_not_the_whole_head(mine: float, half: float, expected: str) -> None:
    name = "attention alone gives nothing"
    rows = ablated("distance", "full", {"nll": (0.08, half, 0.0001)})
    rows += ablated("historic", "full", {"nll": (mine, half, 0.0001)})
    whole = [difference("nll", -0.08, 0.001, 0.0001, method="attention", baseline="distance")]
    assert one(name, ablation=rows, paired=whole) == expected
    assert one(name, paired=whole) == ""
    vector = ablated("distance_vector", "full", {"nll": (mine + 0.001, 0.0, 0.0001)})
    words = numbers(name, a_run({"ablation": pd.DataFrame(rows + vector)}))
    assert f"NLL {mine - 0.08:+.4f} (".replace("-", "−").replace("+0.0000", "0.0000") in words
    assert "against the same with vector scaling NLL −0.0010" in words
    assert ("half the interval is wider than 0.01" in words) == (expected == "underpowered")
    few = [row | {"value": 0.9981} for row in rows]
    assert one(name, ablation=few) == "underpowered"
    folds = [row | {"reference": "full, without folds"} if row["variant"] == "historic" else row for row in rows]
    assert one(name, ablation=folds) == "", "fitted on fewer rows than the baseline is tuned on"


def test_runs_that_disagree_decide_nothing() -> None:
    def run(seed: int, value: float) -> Run:
        rows = [
            difference("accuracy", value, 0.01, 0.0001, method="attention", baseline=b) for b in ("uniform", "distance")
        ]
        return a_run({"paired": pd.DataFrame(rows)}, seed=seed)

    assert verdicts(run(1, 0.02), run(2, 0.03))["attention outperforms in accuracy"] == "supported"
    assert verdicts(run(1, 0.02), run(2, -0.03))["attention outperforms in accuracy"] == "undecided"


@pytest.mark.parametrize(("runs", "enough"), [(1, 199), (2, 399)])
def test_what_so_few_resamples_cannot_show_is_underpowered_and_says_why(runs: int, enough: int) -> None:
    """Counted p is at least 2/(R + 1), twice that for two runs together; .01 is not below .01."""

    def repeats(errors: int, metric: str = "ece") -> list[Run]:
        if metric == "accuracy":
            row = difference(metric, -0.002, 0.01, 0.02, errors, method="attention")
            table = {"paired": pd.DataFrame([row | {"baseline": b} for b in ("uniform", "distance")])}
        else:
            table = {
                "ablation": pd.DataFrame(
                    ablated("alone temperature", "distance", {metric: (-0.02, 0.01, 0.02)}, errors)
                )
            }
        return [a_run(table, seed=seed) for seed in range(runs)]

    name = "a learned temperature calibrates"
    assert verdicts(*repeats(399), resamples=enough)[name] == "underpowered"
    assert f"in {enough} resamples" in numbers(name, *repeats(399), resamples=enough)
    assert verdicts(*repeats(399), resamples=enough + 1)[name] == "undecided"
    assert verdicts(*repeats(400), resamples=enough)[name] == "undecided", "beyond 400 errors the tail is normal"
    assert verdicts(*repeats(19), resamples=10**9)[name] == "underpowered"
    assert "19 of 20 errors needed" in numbers(name, *repeats(19), resamples=10**9)
    exact = verdicts(*repeats(20, "accuracy"), resamples=1)
    assert exact["attention outperforms in accuracy"] != "underpowered", "McNemar's test counts no resamples"


@pytest.mark.parametrize(
    ("behind", "half", "expected"), [(0.07, 0.01, "supported"), (0.01, 0.01, "contradicted"), (0.05, 0.01, "undecided")]
)
def test_the_gap_to_the_network(behind: float, half: float, expected: str) -> None:
    name = "the gap to the network is fundamental"

    def rows(errors: int = 500) -> list[dict[str, Any]]:
        return [difference("accuracy", -behind, half, 0.0001, errors, method="attention", baseline="cnn")]

    linear = [difference("accuracy", -behind, half, 0.0001, method="attention", baseline="linear")]
    assert one(name, paired=rows() + linear) == expected
    assert one(name, paired=linear) == "", "another method is not the network"
    assert one(name, paired=rows(19)) == "underpowered"


@pytest.mark.parametrize(
    ("noisy", "half", "expected"),
    [
        (0.895, 0.002, "supported"),
        (0.889, 0.002, "undecided"),  # .887 / .906 of the clean interval's upper end
        (0.80, 0.01, "contradicted"),
        (0.872, 0.005, "undecided"),  # .877 / .894 of its lower end
    ],
)
def test_robust_is_98_percent_kept_whatever_both_intervals_hold(noisy: float, half: float, expected: str) -> None:
    def rows(value: float, half: float, **where: Any) -> list[dict[str, Any]]:
        ends = {"value": value, "low": value - half, "high": value + half}
        return [{"method": m, "metric": "accuracy", **ends, **where} for m in historic.METHODS]

    name, bare = "kNN is robust to label noise", rows(0.9, 0.006)
    assert one(name, intervals=bare, noise=rows(noisy, half, condition="noise 0.3")) == expected
    assert one(name, intervals=bare, noise=rows(noisy, half, condition="noise 0.6")) == ""
    blurred = rows(0.885, 0.014, condition="noise 0.3")  # .886 of .906 is .978, were all of it kept
    assert one(name, intervals=bare, noise=blurred) == "underpowered"
    assert "wider than 0.02: 0.0221" in numbers(
        name, a_run({"intervals": pd.DataFrame(bare), "noise": pd.DataFrame(blurred)})
    )
    assert one(name, intervals=bare, noise=rows(0.8, 0.014, condition="noise 0.3")) == "contradicted"
    tail = rows(noisy, half, condition="long tail 0.01")
    assert one("kNN is robust to a long tail", intervals=bare, imbalance=tail) == expected
    sure = rows(0.9985, 0.001)  # of 10,000 rows 19 wrong ones decide nothing, 20 do
    assert one(name, intervals=sure, noise=rows(0.9981, 0.001, condition="noise 0.3")) == "underpowered"
    assert one(name, intervals=sure, noise=rows(0.9980, 0.001, condition="noise 0.3")) == "supported"


@pytest.mark.parametrize(
    ("at_one", "half", "expected"),
    [
        (0.899, 0.002, "supported"),
        (0.895, 0.004, "undecided"),  # .013 apart at most
        (0.885, 0.004, "undecided"),  # apart, but perhaps by .007 alone
        (0.85, 0.005, "contradicted"),
        (0.9, 0.005, "underpowered"),  # .01 wide without any movement
        (0.88, 0.02, "underpowered"),
    ],
)
def test_any_k_up_to_the_largest_of_the_study(at_one: float, half: float, expected: str) -> None:
    scores = {1: at_one, 10: 0.9, 200: 0.5}  # beyond 50 the study says nothing
    rows = [
        {"k": k, "method": m, "metric": "accuracy", "value": v, "low": v - half, "high": v + half}
        for k, v in scores.items()
        for m in historic.METHODS
    ]
    assert one("any k will do", k_sweep=rows) == expected
    sure = [row | {"value": 0.9985, "low": 0.998, "high": 0.999} for row in rows]
    assert one("any k will do", k_sweep=sure) == "underpowered", "15 wrong rows move nothing that could be seen"


@pytest.mark.parametrize(
    ("bare", "recalibrated", "expected"),
    [
        (-0.03, -0.03, "supported"),
        (0.03, -0.03, "supported"),  # worse for want of a recalibration alone
        (-0.03, 0.03, "contradicted"),  # what lowers the bare ECE a recalibration gives as well
        (0.03, 0.03, "contradicted"),
    ],
)
def test_views_are_judged_recalibrated_and_the_bare_mean_is_told(
    bare: float, recalibrated: float, expected: str
) -> None:
    def row(method: str, value: float, views: int = 5) -> dict[str, Any]:
        return difference("ece", value, 0.01, 0.0001, method=method, baseline=method, views=views, baseline_views=1)

    rows = [row("attention", bare), row("attention_vector", recalibrated), row("attention_temperature", recalibrated)]
    rows += [row("attention_vector", -recalibrated, views=2), row("distance_vector", -recalibrated)]
    other: dict[str, Any] = row("attention_vector", -recalibrated) | {"baseline": "distance_vector"}
    rows.append(other)
    assert one("TTA calibrates", tta_paired=rows) == expected
    words = numbers("TTA calibrates", a_run({"tta_paired": pd.DataFrame(rows)}))
    assert f"uncalibrated, which decides nothing: Attention {'lower' if bare < 0 else 'higher'}, " in words
    assert f"Attention + vector scaling {'lower' if recalibrated < 0 else 'higher'}, " in words
    assert one("TTA calibrates", tta_paired=rows[:1]) == "", "the bare mean alone says nothing"


@pytest.mark.parametrize(
    ("value", "half", "expected"),
    [(0.0, 0.0029, "contradicted"), (-0.002, 0.0029, "undecided"), (0.0, 0.003, "underpowered")],
)
def test_what_so_wide_an_interval_of_views_cannot_rule_out_is_underpowered(
    value: float, half: float, expected: str
) -> None:
    where = {"method": "attention_vector", "baseline": "attention_vector", "views": 5, "baseline_views": 1}
    assert one("TTA calibrates", tta_paired=[difference("ece", value, half, 0.5, **where)]) == expected


@pytest.mark.parametrize(
    ("value", "half", "p", "errors", "expected"),
    [
        (-0.03, 0.01, 0.0001, 500, "contradicted"),
        (0.0034, 0.002, 0.001, 500, "supported"),
        (0.0034, 0.002, 0.036, 500, "supported"),  # as at the section's level: no loss is needed
        (-0.005, 0.006, 0.1, 500, "undecided"),
        (0.0034, 0.002, 0.001, 19, "underpowered"),
    ],
)
def test_the_k_ensemble_needs_no_loss(value: float, half: float, p: float, errors: int, expected: str) -> None:
    name = "the k-ensemble gives nothing"
    where: dict[str, Any] = {"method": "attention", "baseline": "single"}
    rows = [difference("nll", value, half, p, errors, variant="k_ensemble", **where)]
    rows.append(difference("nll", -value, half, 0.0001, variant="stopping", **where))
    assert one(name, ensemble_paired=rows) == expected
    words = numbers(name, a_run({"ensemble_paired": pd.DataFrame(rows)}))
    assert words.endswith("(+0.0014 … +0.0054), no gain of 0.01 is left") == (expected == "supported")


AGAINST = (("attention", "distance"), ("attention_vector", "distance_vector"), ("attention", "prototypes"))


def moved(metric: str, clean: tuple[float, ...], noisy: tuple[float, ...], errors: int = 500) -> list[dict[str, Any]]:
    """Attention less distance weighting, the same with vector scaling, prototypes; intervals of ± .01 (NLL) or .001."""
    half = 0.01 if metric == "nll" else 0.001
    return [
        difference(metric, value, half, 0.0001, errors, condition=condition, method=mine, baseline=other)
        for condition, values in (
            ("noise 0.0", clean),
            ("noise 0.3", noisy),
            ("noise 0.6", tuple(-9 * v for v in noisy)),
        )
        for (mine, other), value in zip(AGAINST, values, strict=True)
    ]


@pytest.mark.parametrize(
    ("clean", "noisy", "expected"),
    [
        ((-0.1, -0.1, -0.1), (-0.3, -0.3, -0.3), "supported"),
        ((-0.3, -0.3, -0.3), (-0.3, -0.3, -0.3), "underpowered"),  # as far ahead as it was: ± .02 rules nothing out
        ((0.0, 0.0, 0.0), (0.1, 0.1, 0.1), "contradicted"),
        ((-0.1, -0.1, -0.1), (-0.3, -0.3, -0.05), "contradicted"),  # prototypes lose less than it does
        ((-0.1, -0.1, 0.0), (-0.3, -0.3, 0.012), "contradicted"),  # what is left of a gain over them is below .01
        ((-0.1, -0.1, 0.0), (-0.3, -0.3, 0.0), "underpowered"),
        ((-0.1, -0.1, -0.1), (-0.115, -0.3, -0.3), "underpowered"),  # −.015 ± .02: the widths are added
    ],
)
def test_robustness_is_how_much_less_than_others_attention_loses(clean: tuple, noisy: tuple, expected: str) -> None:
    assert one("attention adds robustness", noise_paired=moved("nll", clean, noisy)) == expected
    few = moved("nll", clean, noisy, errors=19)
    assert one("attention adds robustness", noise_paired=few) == "underpowered"
    assert one("attention adds robustness", noise_paired=moved("nll", clean, noisy)[:-4]) == "", "no prototypes"


def test_robustness_in_nll_must_not_cost_accuracy() -> None:
    gain = moved("nll", (0.0,) * 3, (-0.3,) * 3)
    name = "attention adds robustness"
    assert one(name, noise_paired=gain + moved("accuracy", (0.0,) * 3, (0.0,) * 3)) == "supported"
    assert one(name, noise_paired=gain + moved("accuracy", (0.0,) * 3, (-0.01,) * 3)) == "undecided"
    lost = moved("nll", (0.0,) * 3, (-0.3, -0.3, 0.02)) + moved("accuracy", (0.0,) * 3, (0.0,) * 3)
    assert one(name, noise_paired=lost) == "contradicted"
    words = numbers(name, a_run({"noise_paired": pd.DataFrame(lost)}))
    assert "Distance-weighted kNN −0.3000 (−0.3200 … −0.2800)" in words
    assert words.endswith("; prototypes alone lose as little in NLL")


@pytest.mark.parametrize(
    ("batched", "alone", "expected"),
    [
        (0.02, 0.5, "supported"),
        (4.0, 0.5, "contradicted"),
        (0.02, 1.5, "contradicted"),  # a query alone pays more
        (1.1, 0.5, "undecided"),
        (0.02, 0.9, "undecided"),  # .9 ± .2 over distance weighting
    ],
)
def test_the_overhead_of_a_query_in_a_batch_and_of_one_alone(batched: float, alone: float, expected: str) -> None:
    def row(head: str, quantity: str, ms: float, half: float = 0.1) -> dict[str, Any]:
        return {"head": head, "quantity": quantity, "value": ms, "low": ms - half, "high": ms + half}

    rows = [row("attention", "over_distance_ms", batched, 0.2), row("attention", "single_p50_ms", alone + 0.1)]
    rows.append(row("distance", "single_p50_ms", 0.1))
    assert one("below 1 ms", profile_heads=rows) == expected
    words = numbers("below 1 ms", a_run({"profile_heads": pd.DataFrame(rows)}))
    assert f"a query in a batch +{batched:.4f} ms (" in words
    assert f"alone +{alone:.4f} ms ({alone - 0.2:+.4f} … ".replace("-", "−") in words
    assert words.endswith(f"{alone + 0.1:.3f} against 0.100")
    assert one("below 1 ms", profile_heads=rows[:1]) == ""


@pytest.mark.parametrize(
    ("b", "c", "r2", "expected"),
    [
        ((0.1, 0.05, 0.2), (1.1, 0.8, 1.4), 0.99, "supported"),
        ((0.1, 0.05, 0.2), (1.1, 0.8, 1.4), 0.5, "undecided"),  # the curve does not fit
        ((0.1, 0.05, 0.2), (0.4, 0.2, 0.7), 0.99, "contradicted"),
        ((-0.1, -0.2, -0.05), (1.1, 0.1, 4.0), 0.99, "contradicted"),  # it rises
        ((0.1, 0.05, 0.2), (1.1, 0.1, 4.0), 0.99, "undecided"),  # any exponent will do
        ((0.1, 0.05, 0.2), (1.4, 0.9, 2.5), 0.99, "undecided"),  # 1/k and 1/k² both will
        ((0.1, -0.05, 0.2), (1.1, 0.8, 1.4), 0.99, "undecided"),
    ],
)
def test_the_rate_of_the_error_is_judged_as_the_section_on_theory_does(
    b: tuple, c: tuple, r2: float, expected: str
) -> None:
    rows = [
        {"quantity": quantity, "item": m, **dict(zip(("value", "low", "high"), ends, strict=True))}
        for m in historic.METHODS
        for quantity, ends in (("fit_b", b), ("fit_c", c), ("fit_a", (9.0, 9.0, 9.0)), ("fit_r2", (r2, None, None)))
    ]

    def fit(error: float) -> list[dict[str, Any]]:
        return [{"method": m, "k": k, "error": error / k} for m in historic.METHODS for k in (1, 10)]

    name = "error O(1/k)"
    assert one(name, theory=rows, theory_fit=fit(0.1)) == expected
    assert theory.rate_verdict(b[1:], c[1:], r2, 1000) == expected
    assert one(name, theory=rows, theory_fit=fit(0.0019)) == "underpowered", "19 of 10,000 are wrong at the worst k"
    assert one(name, theory=rows, theory_fit=fit(0.002)) == expected


# The section


def swept(accuracy: float) -> pd.DataFrame:
    rows = [
        {"k": k, "method": m, "metric": metric, "value": accuracy - 0.01 / k, "low": accuracy - 0.02, "high": accuracy}
        for k in (1, 10, 50)
        for m in historic.METHODS
        for metric in ("accuracy", "ece")
    ]
    return pd.DataFrame(rows)


def test_ours_are_means_over_runs_in_the_places_of_theirs() -> None:
    def run(seed: int, value: float) -> Run:
        row = {"method": "attention", "metric": "accuracy", "low": 0.0, "high": 1.0}
        tables = {
            "intervals": [row | {"value": value}],
            "noise": [row | {"value": value - 0.1, "condition": "noise 0.3", "repeat": r} for r in (0, 1)]
            + [row | {"value": 0.1, "condition": "asymmetric noise 0.3", "repeat": 0}],
            "imbalance": [row | {"value": value - 0.2, "condition": "long tail 0.01", "repeat": 0}],
            "tta": [row | {"value": value + 0.01 * views, "views": views} for views in (1, 5)],
            "ensemble": [
                row | {"value": value - 0.01, "variant": "k_ensemble"},
                row | {"value": 0, "variant": "single"},
            ],
        }
        return a_run({name: pd.DataFrame(rows) for name, rows in tables.items()}, seed=seed)

    runs = [run(1, 0.8), run(2, 0.9)]
    main = ours(runs, "main")
    assert main[0.0, "attention", "accuracy"] == pytest.approx(0.85)
    assert main[0.0, "attention_tta", "accuracy"] == pytest.approx(0.90)
    assert main[0.0, "attention_ensemble", "accuracy"] == pytest.approx(0.84)
    noise = ours(runs, "noise")
    assert noise == {
        (0.0, "attention", "accuracy"): pytest.approx(0.85),
        (0.3, "attention", "accuracy"): pytest.approx(0.75),
    }
    tail = ours(runs, "imbalance")
    assert tail == {
        (1.0, "attention", "accuracy"): pytest.approx(0.85),
        (0.01, "attention", "accuracy"): pytest.approx(0.65),
    }
    assert ours(runs, "k_sweep") == {}


def test_the_section_shows_theirs_beside_ours_and_gives_no_verdict_on_them() -> None:
    run = a_run(compared(WIN) | {"k_sweep": swept(0.9)})
    (part,) = section([run], LEVEL).parts
    named = {table.name: table for table in part.tables}
    assert set(named) == {"conclusions", "main", "k_sweep", "theory"}  # no noise, no index: left out
    assert all(len(row) == len(table.head) for table in part.tables for row in table.rows)
    (row,) = (row for row in named["main"].rows if [row[0], str(row[1])] == ["NLL", "Attention"])
    own = run.tables["intervals"].set_index(["method", "metric"]).loc[("attention", "nll"), "value"]
    assert row[2:4] == [f"{own:.4f}", "0.8193 / 1.0250"]
    assert named["main"].note.startswith("This is a harder copy of CIFAR-10")
    assert len(part.pictures) == 2  # accuracy and ECE over k
    assert all(png.startswith(PNG) for _, png in part.pictures)


def test_the_table_of_conclusions_is_computed() -> None:
    win, loss = (section([a_run(compared(s))], LEVEL).parts[0].tables[0].rows[0] for s in (WIN, LOSS))
    assert list(win[:2]) == ["Attention outperforms uniform and distance weighting.", "supported"]
    assert list(loss[:2]) == ["Attention outperforms uniform and distance weighting.", "contradicted"]
    main = section([a_run(compared(WIN), seed=s) for s in (1, 2)], LEVEL).parts[0].tables[1]
    assert main.head[2] == "ours, mean of 2 seeds"


def test_the_presets_experiment_comes_first() -> None:
    run = a_run(compared(TIE))
    plain, chosen = (section([run], LEVEL, preset).parts[0] for preset in ("none", "experiment5"))
    heads = [{t.name: t.head for t in part.tables}["main"][3:] for part in (plain, chosen)]
    assert heads[0] == ["experiment 1–3", "experiment 4", "experiment 5", "experiment 6"]
    assert heads[1] == ["experiment 5", "experiment 1–3", "experiment 4", "experiment 6"]


@pytest.mark.parametrize(
    ("preset", "settings"),
    [("none", "with the project's own settings"), ("experiment5", "with the preset experiment5"), ("mine", "mine")],
)
def test_captions_say_with_which_settings_ours_was_made(preset: str, settings: str) -> None:
    captions = {t.name: t.caption for t in section([a_run(compared(TIE))], LEVEL, preset).parts[0].tables}
    named = {name for name, caption in captions.items() if f"{settings}," in caption}
    assert named == set(captions) - {"conclusions"}


def test_other_datasets_stand_beside_nothing_but_the_conclusions() -> None:
    adult, iris = section([a_run(compared(TIE), "adult"), a_run(compared(TIE), "iris")], LEVEL).parts
    assert [t.name for t in adult.tables] == ["conclusions"]
    assert [t.name for t in iris.tables] == ["conclusions", "main"]
    assert "0.9667" in iris.tables[1].rows[0]
    assert not adult.pictures


def test_without_any_table_the_section_says_so() -> None:
    (part,) = section([a_run({}, "digits")], LEVEL).parts
    assert [len(table.rows) for table in part.tables] == [0]
    assert TABLES == {}

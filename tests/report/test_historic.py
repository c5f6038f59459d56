"""The historic study: stored numbers, and verdicts that depend on ours."""

from typing import Any

import pandas as pd
import pytest

from attnknn.evaluation.opponents import score_tables
from attnknn.report.results import Run
from attnknn.report.sections import historic
from attnknn.report.tables import Cell
from synthetic_results import LOSS, TIE, WIN, Strengths, predictions

STUDY = historic.read_study("historic.csv")


def a_run(tables: dict[str, Any], dataset: str = "cifar10_jpeg", seed: int = 42) -> Run:
    frames = {name: pd.DataFrame(table) for name, table in tables.items()}
    return Run(dataset, seed, {"prepare": {"bank": 40_000, "test": 10_000}}, frames)


def compared(strengths: Strengths, rows: int = 2000) -> dict[str, pd.DataFrame]:
    """`intervals` of synthetic predictions."""
    probs = predictions(strengths, rows)
    table = pd.DataFrame(score_tables(probs, probs, 15, 500, 0.95, 0)[1]["intervals"])
    return {"intervals": table.fillna({"role": ""})}


def answers(*runs: Run) -> dict[str, Cell]:
    """The verdict on each conclusion of runs of one dataset, with its difference."""
    conclusions = historic.historic(runs).tables[0]
    return {str(row[0].value): row[1] for row in conclusions.rows}  # type: ignore[union-attr, misc]


def test_conclusions_are_twelve() -> None:
    assert len(historic.read_study("conclusions.csv")) == 12


@pytest.mark.parametrize("dataset", ["cifar10", "iris"])
def test_numbers_are_unique_and_in_range(dataset: str) -> None:
    study = STUDY[STUDY["dataset"] == dataset]
    assert not study.duplicated(["experiment", "table", "x", "method", "metric"]).any()
    assert study["source"].ne("").all()
    scores = study[study["experiment"] != ""]
    assert scores["value"].between(0, scores["metric"].eq("nll").map({True: 3, False: 1}), inclusive="neither").all()


@pytest.mark.parametrize(("experiment", "repeated"), [("1–3", 2), ("4", 3)])
@pytest.mark.parametrize("method", ["uniform", "distance", "attention"])
def test_tables_of_an_experiment_agree(experiment: str, repeated: int, method: str) -> None:
    """k = 10, no noise and no long tail repeat the main comparison."""
    rows = STUDY.query("dataset == 'cifar10' and experiment == @experiment and method == @method")
    values = rows[rows["metric"] == "accuracy"].set_index(["table", "x"])["value"]
    for key in (("k_sweep", 10), ("noise", 0.0), ("imbalance", 1.0))[:repeated]:
        assert values[key] == values["main", 0]


@pytest.mark.parametrize(
    ("low", "high", "p", "sign", "least", "margin", "expected"),
    [
        (0.01, 0.02, 0.001, 1, 0.0, 0.003, "supported"),
        (-0.02, -0.01, 0.001, -1, 0.0, 0.003, "supported"),
        (0.01, 0.02, float("nan"), 1, 0.0, 0.003, "supported"),
        (0.01, 0.02, 0.02, 1, 0.0, 0.003, "undecided"),  # not significant
        (-0.02, -0.01, 0.001, 1, 0.0, 0.003, "contradicted"),
        (-0.002, 0.002, 0.5, 1, 0.0, 0.003, "contradicted"),  # no gain of .003 is left
        (-0.02, 0.02, 0.5, 1, 0.0, 0.003, "undecided"),
        (0.04, 0.06, 0.001, 1, 0.05, 0.05, "undecided"),
        (-0.009, 0.002, float("nan"), 0, 0.0, 0.01, "supported"),  # no sign: equal up to the margin
        (-0.002, 0.03, float("nan"), 0, 0.0, 0.01, "undecided"),
        (0.005, 0.03, float("nan"), 0, 0.0, 0.01, "undecided"),
        (0.011, 0.03, float("nan"), 0, 0.0, 0.01, "contradicted"),
        (-0.03, -0.011, float("nan"), 0, 0.0, 0.01, "contradicted"),
    ],
)
def test_verdict_by_interval(
    low: float, high: float, p: float, sign: int, least: float, margin: float, expected: str
) -> None:
    assert historic.verdict(low, high, p, sign, least, margin) == expected


def test_conclusions_depend_on_the_numbers() -> None:
    """One conclusion, four verdicts (fault 13)."""
    claim = "Attention outperforms uniform and distance weighting."
    won = compared(WIN)["intervals"]
    for table, expected in (
        (won, "supported"),
        (compared(LOSS)["intervals"], "contradicted"),
        (won.assign(errors=19), "no verdict: 19 errors"),
        (won.assign(p=0.02), "undecided"),
    ):
        assert answers(a_run({"intervals": table}))[claim].value == expected


def test_no_conclusion_rests_on_a_head_that_did_not_train() -> None:
    """The fitted head in comparisons of attention, the variant in those of the ablation; costs need no training."""
    row = {"variant": "alone temperature", "reference": "distance", "metric": "ece", "difference": -0.1, "p": 0.0001}
    row |= {"value": 0.1, "low": -0.2, "high": -0.05}
    cost = {"head": "attention", "quantity": "over_distance_ms", "value": 0.2, "low": 0.1, "high": 0.3}
    epochs = [{"epoch": e, "fit_loss": 0.4, "val_nll": nll} for e, nll in enumerate((0.35, 0.36))]
    claims = (
        "Attention outperforms uniform and distance weighting.",
        "A learned temperature improves calibration.",
        "Attention adds less than 1 ms a query.",
    )
    for trained, state, expected in (
        (epochs, "yes", ["no verdict: kept its start", "supported", "supported"]),
        (epochs[::-1], "did not train", ["supported", "no verdict: did not train", "supported"]),
    ):
        ablation = [{**row, "trained": state}, {**row, "trained": state, "metric": "accuracy", "value": 0.7}]
        tables = {**compared(WIN), "attention": trained, "ablation": ablation, "profile_heads": [cost]}
        cells = answers(a_run(tables))
        assert [cells[claim].value for claim in claims] == expected


def test_paired_comparisons_answer_where_they_are_stored() -> None:
    """Three conclusions are tested by the difference of two scores, and say so."""
    conclusions = historic.read_study("conclusions.csv")
    unpaired = conclusions[conclusions["less"] != ""]
    assert unpaired["measure"].str.startswith("accuracy, distance-weighted kNN").tolist() == [True] * 3
    intervals = compared(WIN)["intervals"]
    nll = intervals.query("role == 'kNN' and metric == 'nll'").iloc[0]
    cell = answers(a_run({"intervals": intervals}))["Attention alone gives nothing over distance weighting."]
    low, high = nll["difference_low"], nll["difference_high"]
    assert cell.around == f"{nll['difference']:+.4f} ({low:+.4f} … {high:+.4f})".replace("-", "−")


@pytest.mark.parametrize(("accuracy", "expected"), [(0.9982, "no verdict: 18 errors"), (0.998, "supported")])
def test_errors_are_those_of_the_methods_compared(accuracy: float, expected: str) -> None:
    """Distance at two k, of 10,000 rows; attention makes many more errors."""
    row = {"method": "distance", "metric": "accuracy", "validation": 0.9}
    swept = [{**row, "k": k, "value": a, "low": a - 1e-3, "high": a + 1e-3} for k, a in ((1, 0.9984), (50, accuracy))]
    rows = historic.historic([a_run({**compared(TIE), "k_sweep": swept})]).tables[0].rows
    ((conclusion, cell),) = [row for row in rows if str(row[0]).startswith("Accuracy is stable over k")]
    assert "k 50 − k 1, unpaired; within ±0.01 (" in str(conclusion)
    assert str(cell).startswith(expected)


@pytest.mark.parametrize(("ms", "expected"), [(0.2, "supported"), (3.0, "contradicted")])
def test_overhead_needs_no_errors(ms: float, expected: str) -> None:
    row = {"head": "attention", "quantity": "over_distance_ms", "value": ms, "low": ms - 0.1, "high": ms + 0.1}
    perfect = compared(TIE)["intervals"].assign(value=1.0)
    cell = answers(a_run({"intervals": perfect, "profile_heads": [row]}))["Attention adds less than 1 ms a query."]
    assert cell.value == expected


def test_numbers_of_the_study_stand_beside_ours() -> None:
    """Of the datasets it used; in the columns of its experiments."""
    run = a_run(compared(WIN))
    numbers = historic.historic([run, a_run(compared(TIE), "adult")]).tables[1]
    rows = {str(row[1]): row for row in numbers.rows if row[0] == "cifar10_jpeg"}
    own = run.tables["intervals"].drop_duplicates(["method", "metric"]).set_index(["method", "metric"])["value"]
    ours = " / ".join(f"{own['attention', m]:.4f}" for m in ("accuracy", "nll", "ece"))
    assert list(rows["Attention"][2:4]) == [ours, "0.8854 / 0.8193 / 0.0329"]
    assert {row[0] for row in numbers.rows} == {"cifar10_jpeg"}

"""The historic study: stored numbers, verdicts that depend on ours, and the section."""

from typing import Any

import pandas as pd
import pytest

from attnknn.evaluation.opponents import score_tables
from attnknn.report.differences import Level
from attnknn.report.results import Run
from attnknn.report.sections import historic
from import_closure import ROOT
from synthetic_results import LOSS, TIE, WIN, Strengths, check_part, predictions

LEVEL = Level(0.01, 2000)
STUDY = historic.study_numbers("cifar10")


def a_run(tables: dict[str, Any], dataset: str = "cifar10_jpeg", seed: int = 42) -> Run:
    frames = {name: pd.DataFrame(table) for name, table in tables.items()}
    return Run(dataset, seed, {"prepare": {"bank": 40_000, "test": 10_000}}, frames)


def compared(strengths: Strengths, rows: int = 2000) -> dict[str, pd.DataFrame]:
    """`intervals` of synthetic predictions."""
    probs = predictions(strengths, rows)
    return {"intervals": pd.DataFrame(score_tables(probs, [probs], 15, 500, 0.95, 0)[1]["intervals"])}


def verdicts(*runs: Run) -> dict[str, set[str]]:
    result: dict[str, set[str]] = {}
    for claim, _, _, word, _ in historic.conclusions_table(runs, LEVEL).rows:
        result.setdefault(str(claim), set()).add(str(word))
    return result


def test_presets_match_the_experiments() -> None:
    presets = {path.stem for path in (ROOT / "presets").glob("*.yaml")}
    assert sorted(name for names in historic.EXPERIMENTS.values() for name in names) == sorted(presets - {"none"})


@pytest.mark.parametrize("dataset", ["cifar10", "iris"])
def test_numbers_are_unique_and_in_range(dataset: str) -> None:
    study = historic.study_numbers(dataset)
    assert not study.duplicated(["experiment", "table", "x", "method", "metric"]).any()
    assert study["source"].ne("").all()
    scores = study[study["experiment"] != ""]
    assert scores["value"].between(0, scores["metric"].eq("nll").map({True: 3, False: 1}), inclusive="neither").all()
    assert len(historic.study_numbers("adult")) == len(historic.study_numbers("cifar100")) == 0


@pytest.mark.parametrize(("experiment", "repeated"), [("1–3", 2), ("4", 3)])
@pytest.mark.parametrize("method", historic.METHODS)
def test_tables_of_an_experiment_agree(experiment: str, repeated: int, method: str) -> None:
    """k = 10, no noise and no long tail repeat the main comparison."""
    rows = STUDY.query("experiment == @experiment and method == @method and metric == 'accuracy'")
    values = rows.set_index(["table", "x"])["value"]
    for key in (("k_sweep", 10), ("noise", 0.0), ("imbalance", 1.0))[:repeated]:
        assert values[key] == values["main", 0]


def test_numbers_that_differ_between_documents() -> None:
    row = STUDY[(STUDY["experiment"] == "1–3") & (STUDY["method"] == "uniform") & (STUDY["metric"] == "nll")].iloc[0]
    assert (row["value"], row["other"]) == (0.8193, "1.021")


@pytest.mark.parametrize(
    ("low", "high", "least", "margin", "expected"),
    [
        (0.01, 0.02, 0.0, 0.003, "supported"),
        (-0.02, -0.01, 0.0, 0.003, "contradicted"),
        (-0.002, 0.002, 0.0, 0.003, "contradicted"),  # no gain of .003 is left
        (-0.02, 0.02, 0.0, 0.003, "undecided"),
        (0.04, 0.06, 0.05, 0.05, "undecided"),
    ],
)
def test_verdict_by_interval(low: float, high: float, least: float, margin: float, expected: str) -> None:
    assert historic.verdict(low, high, least, margin) == expected


def test_conclusions_depend_on_the_numbers() -> None:
    """One conclusion, three verdicts (fault 13)."""
    claim = "Attention outperforms uniform and distance weighting."
    won = compared(WIN)
    for tables, expected in (
        (won, "supported"),
        (compared(LOSS), "contradicted"),
        (won | {"intervals": won["intervals"].assign(value=1.0)}, "undecided"),  # no errors
        ({"intervals": won["intervals"].assign(p=0.02)}, "undecided"),
    ):
        assert verdicts(a_run(tables))[claim] == {expected}


@pytest.mark.parametrize(
    ("difference", "half", "expected"),
    [(0.05, 0.002, "contradicted"), (0.09, 0.002, "supported"), (0.073, 0.004, "undecided")],
)
def test_difference_of_differences_adds_the_widths(difference: float, half: float, expected: str) -> None:
    rows = [
        {"variant": name, "reference": "full", "metric": "nll", "value": 0.4, "difference": d, "p": 0.0001}
        | {"low": d - half, "high": d + half}
        for name, d in (("distance", 0.08), ("historic", difference))
    ]
    run = a_run({**compared(TIE), "ablation": rows})
    assert verdicts(run)["Attention alone gives nothing over distance weighting."] == {expected}
    (row,) = (r for r in historic.conclusions_table([run], LEVEL).rows if str(r[1]).startswith("NLL: the study's"))
    low, high = difference - 0.08 - 2 * half, difference - 0.08 + 2 * half
    assert row[2].around == f"{low:+.4f} … {high:+.4f}".replace("-", "−")  # type: ignore[union-attr]


@pytest.mark.parametrize(("ms", "expected"), [(0.2, "supported"), (3.0, "contradicted")])
def test_overhead_needs_no_errors(ms: float, expected: str) -> None:
    row = {"head": "attention", "quantity": "over_distance_ms", "value": ms, "low": ms - 0.1, "high": ms + 0.1}
    assert verdicts(a_run({"profile_heads": [row]})) == {"Attention adds less than 1 ms a query.": {expected}}


def test_our_scores_are_means_over_runs() -> None:
    def run(seed: int, value: float) -> Run:
        row = {"method": "attention", "metric": "accuracy", "low": 0.0, "high": 1.0}
        tables = {
            "intervals": [row | {"value": value}],
            "noise": [
                row | {"value": v, "condition": f"{kind}noise 0.3"}
                for kind, v in (("", value - 0.1), ("asymmetric ", 0.1))
            ],
            "tta": [row | {"value": value + 0.01 * views, "views": views} for views in (1, 5)],
            "ensemble": [row | {"value": v, "variant": n} for n, v in (("k_ensemble", value - 0.01), ("single", 0))],
        }
        return a_run(tables, seed=seed)

    runs = [run(1, 0.8), run(2, 0.9)]
    main = historic.our_scores(runs, "main").set_index("method")["value"].to_dict()
    assert main == pytest.approx({"attention": 0.85, "attention_tta": 0.90, "attention_ensemble": 0.84})
    assert historic.our_scores(runs, "noise").set_index("x")["value"].to_dict() == pytest.approx({0.0: 0.85, 0.3: 0.75})
    assert historic.our_scores(runs, "k_sweep").empty


def test_section_compares_with_the_study() -> None:
    grid = {"k": (1, 10, 50), "method": historic.METHODS, "metric": ("accuracy", "ece", "nll")}
    swept = pd.MultiIndex.from_product(grid.values(), names=grid).to_frame(index=False)
    run = a_run(compared(WIN) | {"k_sweep": swept.assign(value=0.9, low=0.8, high=1.0)})
    (part,) = historic.section([run], LEVEL).parts
    tables = {table.name: table for table in part.tables}
    assert set(tables) == {"conclusions", "main", "k_sweep", "theory"}  # no noise, no index: left out
    check_part(part)
    assert all(len(row) == len(table.head) for table in part.tables for row in table.rows)
    (row,) = (row for row in tables["main"].rows if [row[0], str(row[1])] == ["NLL", "Attention"])
    own = run.tables["intervals"].set_index(["method", "metric"]).loc[("attention", "nll"), "value"]
    assert row[2:4] == [f"{own:.4f}", "0.8193 / 1.0250"]
    assert len(part.pictures) == 2  # accuracy and ECE over k


def test_experiment_of_the_preset_comes_first() -> None:
    run = a_run(compared(TIE))
    for preset, order in (("none", ("1–3", "4", "5", "6")), ("experiment5", ("5", "1–3", "4", "6"))):
        heads = {table.name: table.head for table in historic.section([run], LEVEL, preset).parts[0].tables}
        assert heads["main"][3:] == [f"experiment {number}" for number in order]


def test_other_datasets_have_conclusions_only() -> None:
    adult, iris = historic.section([a_run(compared(TIE), "adult"), a_run(compared(TIE), "iris")], LEVEL).parts
    assert [t.name for t in adult.tables] == ["conclusions"]
    assert [t.name for t in iris.tables] == ["conclusions", "main"]
    assert "0.9667" in iris.tables[1].rows[0]
    assert not adult.pictures
    assert historic.TABLES == {}

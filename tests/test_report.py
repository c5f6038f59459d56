import csv
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from attnknn.errors import InputError
from attnknn.plots import METHODS
from attnknn.report import claims as claimed
from attnknn.report.build import carried, write_report
from attnknn.report.claims import Claim, answer, answers, beyond, headline, holm, overall, sentence
from attnknn.report.results import everywhere, read_runs
from attnknn.report.tables import ablated, calibrations, conditions, fixed, p_value
from attnknn.scorecard import BASE
from closure import ROOT
from results import LOSS, TIE, VARIANTS, WIN, write_ablation, write_conditions, write_results

DATASETS, SEED = ("digits", "iris", "cifar10_jpeg"), 42


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
    (line,) = claimed.out_of_reach(open_, 999)
    assert line.startswith("Fewer than 400 are wrong on digits: there 999 resamples are too coarse")
    assert f"among {len(open_)} claims" in line
    enough = 200 * len(open_)
    assert claimed.out_of_reach(open_, enough - 1) != [], "n · 2/(R + 1) is .01, not below"
    assert claimed.out_of_reach(open_, enough) == []
    assert claimed.out_of_reach(claims(paired(errors=400, p=0.002)), 999) == []
    runs = claims(pd.concat([paired(repeat=0, errors=399, p=0.002), paired(repeat=1, errors=399, p=0.002)]))
    assert claimed.out_of_reach(runs, 2 * enough - 1) != []
    assert claimed.out_of_reach(runs, 2 * enough) == []


def test_what_is_decided_was_in_reach() -> None:
    """Holm multiplies the smallest p by the number of claims, and later ones by less."""
    small = paired("iris", errors=399, p=0.002)
    found = claims(pd.concat([paired("digits", p=1e-12), small]), alpha=0.05)
    assert {c.verdict for c in found} == {"yes"}
    assert len(found) * 0.002 > 0.01
    assert claimed.out_of_reach(found, 999) == []


def test_too_few_errors_are_told_whatever_the_resamples() -> None:
    (line,) = claimed.out_of_reach(claims(paired(errors=19)), 10**9)
    assert line == "Fewer than 20 test rows are wrong on digits: too few for a verdict."
    assert claimed.out_of_reach(claims(paired(errors=20)), 10**9) == []


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "yes"), (-0.1, "no")])
def test_better_is_yes_and_worse_is_no_in_every_metric(gain: float, expected: str) -> None:
    found = claims(paired(against={"uniform": 3 * gain, "distance_vector": gain, "linear": gain}))
    assert {c.verdict for c in found} == {expected}
    assert answer(found) == expected


def test_undecided_from_alpha_upwards() -> None:
    """Three metrics against two baselines are six claims, so Holm takes the smallest p six times."""
    assert {c.verdict for c in claims(paired(p=0.01 / 6 + 1e-9))} == {"undecided"}
    assert {c.verdict for c in claims(paired(p=0.01 / 6 - 1e-9))} == {"yes"}
    assert {c.verdict for c in claims(paired(p=0.04 / 6), alpha=0.05)} == {"yes"}


def test_more_settings_make_each_claim_harder() -> None:
    assert {c.verdict for c in claims(paired(p=0.0015))} == {"yes"}
    for key in ("dataset", "condition"):
        ten = pd.concat([paired(**{key: f"d{i}"}, p=0.0015) for i in range(10)])
        assert {c.verdict for c in claims(ten)} == {"undecided"}


def test_the_best_baseline_is_chosen_on_validation_rows_whatever_the_test_rows_say() -> None:
    """On test rows uniform is by far the hardest to beat; validation rows say distance + isotonic, and that is it."""
    rows = paired(against={"uniform": -9.0, "distance_isotonic": 0.1, "distance_vector": 0.2, "linear": -5.0})
    found = [(c.metric, c.baseline, c.roles) for c in claims(rows, best="distance_isotonic")]
    assert found == [
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
    found = claims(rows, best)
    assert [(c.baseline, c.verdict) for c in found if c.metric == "nll" and c.roles == ("without neighbours",)] == [
        (best, "no")
    ]
    assert answer(found) == "yes"
    assert "its NLL is worse on digits." in beyond(found)
    assert "the best without neighbours: worse in NLL, accuracy and ECE" in sentence(found)


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
    found = claims(paired().assign(difference=-0.1))
    assert {c.metric: c.verdict for c in found} == {"nll": "yes", "accuracy": "no", "ece": "yes"}
    assert answer(found) == "no"
    assert "better in NLL and ECE, worse in accuracy" in sentence(found)


def test_every_condition_has_its_own_answer_and_the_worst_is_the_datasets() -> None:
    rows = pd.concat([paired(), paired(condition="noise 0.3", gain=-0.1), paired("iris")])
    found = answers(claims(rows))
    assert found == {("digits", "clean"): "yes", ("digits", "noise 0.3"): "no", ("iris", "clean"): "yes"}
    assert [overall(v) for v in (["yes", "no"], ["yes", "undecided"], ["yes", "yes"])] == ["no", "undecided", "yes"]
    lines = headline(found)
    assert lines[0].startswith("Learned attention does not pay on digits (noise 0.3): ")
    assert lines[1].startswith("Learned attention pays on digits (clean) and iris: ")


def test_the_first_words_are_where_attention_does_not_win() -> None:
    lines = headline({("adult", "clean"): "yes", ("digits", "clean"): "no", ("iris", "clean"): "undecided"})
    assert [words.split(":")[0].rstrip(".") for words in lines] == [
        "Learned attention does not pay on digits",
        "Learned attention does not clearly win on iris",
        "Learned attention pays on adult",
    ]


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


# The page


def settings(**evaluate: int) -> dict:
    params = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
    return {**params, "evaluate": {**params["evaluate"], **evaluate}}


def report(root: Path, out: Path, datasets: tuple[str, ...] = DATASETS, seeds: tuple[int, ...] = (SEED,)) -> str:
    params = settings(resamples=100)
    write_report(root / "metrics", root / "plots", out, datasets, seeds, params, "abc1234 of 2026-01-02")
    return (out / "index.html").read_text("utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    for dataset, strengths in zip(DATASETS, (LOSS, TIE, WIN), strict=True):
        write_results(root, dataset, SEED, strengths)
    write_results(root, "digits", 7, LOSS)
    write_conditions(root, "cifar10_jpeg", SEED, WIN)
    write_ablation(root, "cifar10_jpeg", SEED)
    write_results(root, "dropped", SEED, WIN)
    return root


@pytest.fixture(scope="module")
def page(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("out") / "report"
    return report(root, out), out


class Reader(HTMLParser):
    """Collects what a page refers to, and checks that its tags are balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(page: tuple[str, Path]) -> None:
    text, out = page
    reader = Reader(text)
    assert reader.open == []
    assert not {"script", "link", "iframe"} & set(reader.tags)
    outside = [link for link in reader.links if not link.startswith(("data:image/png;base64,", "#"))]
    assert sorted(outside) == ["comparison.csv", "comparison.tex", "results.md"]
    assert all((out / name).is_file() for name in outside)
    anchors = [link[1:] for link in reader.links if link.startswith("#")]
    assert all(f'id="{name}"' in text for name in anchors)


def test_the_answer_comes_first_and_says_where_attention_loses(page: tuple[str, Path]) -> None:
    text, _ = page
    lead = text.split('<p class="lead">')[1].split("</p>")[0]
    assert lead.startswith("Learned attention does not pay on digits")
    assert text.index("does not pay on digits") < text.index('<table class="claims">') < text.index("<table>")


def test_every_claim_has_one_row_in_the_first_table(page: tuple[str, Path]) -> None:
    """digits, iris and five conditions of cifar10_jpeg, three metrics each, against two or three baselines."""
    table = page[0].split('<table class="claims">')[1].split("</table>")[0]
    rows = [row for row in table.split("<tr>") if 'class="metric"' in row]
    assert 7 * 3 * 2 <= len(rows) <= 7 * 3 * 3
    assert f"over the {len(rows)} claims" in page[0]
    assert table.count("without neighbours") == 7 * 3
    assert [table.count(f">{name}, 2 runs<") for name in ("noise 0.3", "long tail 0.01")] == [1, 1]
    markdown = (page[1] / "results.md").read_text("utf-8").split("### iris")[0].split("### digits")[0]
    assert sum(line.startswith("| ") for line in markdown.splitlines()) == 1 + len(rows)


def test_conditions_and_ablation_stand_where_they_were_run(page: tuple[str, Path], root: Path) -> None:
    parts = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', page[0], flags=re.DOTALL))
    for heading in ("When the memory is not as it should be", "What each part of the head is worth"):
        assert [name for name in DATASETS if heading in parts[name]] == ["cifar10_jpeg"]
    found = parts["cifar10_jpeg"]
    assert all(f"<th>{name.replace('_', ' ')}<small>against" in found for name in VARIANTS if name != "full")
    rows = pd.read_csv(root / "plots" / "ablation" / f"cifar10_jpeg-{SEED}.csv").query("metric == 'nll'")
    for name in ("agreement", "temperature"):
        val, test = (fixed(float(rows[rows["variant"] == name][of].mean()), 3) for of in ("validation", "value"))
        assert val != test
        assert re.search(rf"<th>{name}<small>against \w+</small></th>\n<td>{val}</td>\n<td>{test}</td>", found), name
    assert "100 resamples are too coarse for a verdict on NLL among" in page[0]
    assert re.search(r"<th>full</th>\n<td>[\d.]+</td>\n<td>[\d.]+</td><td><small></small></td><td></td>", found), (
        "itself"
    )
    headings = re.findall(r"<h3>(.*?)</h3>", found)
    assert headings[:5] == [
        "All methods",
        "With calibration added",
        "When the memory is not as it should be",
        "What each part of the head is worth",
        "Headroom",
    ]
    assert "one of the nearest 5 for 0.942" in found


def test_methods_of_pictures_are_the_methods_that_are_compared() -> None:
    assert tuple(METHODS) == BASE


def test_the_heads_own_gain_is_told_from_calibrations() -> None:
    """Calibration takes distance from .5 to .3 and attention from .35 to .3: its gain is gone with calibration."""
    nll = {"distance": 0.5, "attention": 0.35, "distance_vector": 0.3, "attention_vector": 0.3}
    rows = [
        {"seed": 1, "method": m, "metric": metric, "value": v, "low": v, "high": v}
        for m, v in nll.items()
        for metric in ("nll", "ece")
    ]
    tests = [
        {"seed": 1, "method": a, "baseline": b, "metric": metric, "difference": nll[a] - nll[b], "p": 0.5}
        for a, b in (("attention", "distance"), ("attention_vector", "distance_vector"))
        for metric in ("nll", "ece")
    ]
    first = calibrations(pd.DataFrame(rows), pd.DataFrame(tests), 3)[0]
    assert first["kinds"] == ["", "vector"]
    assert [(name, {k: c.value for k, c in cells.items()}) for name, cells in first["rows"]] == [
        ("distance", {"": "0.500", "vector": "0.300"}),
        ("attention", {"": "0.350", "vector": "0.300"}),
    ]
    assert {k: c.value for k, c in first["gain"].items()} == {"": "−0.150", "vector": "0.000"}


def test_an_ablation_of_another_shape_is_refused(tmp_path: Path) -> None:
    write_results(tmp_path, "digits", 3, WIN)
    write_ablation(tmp_path, "digits", 3)
    path = tmp_path / "plots" / "ablation" / "digits-3.csv"
    pd.read_csv(path).drop(columns="validation").to_csv(path, index=False)
    with pytest.raises(InputError, match=r"ablation.*validation"):
        read_runs(tmp_path / "metrics", tmp_path / "plots", ["digits"], [3])


def test_the_parts_missed_most_are_told_by_validation() -> None:
    run = {"metric": "nll", "reference": "full", "repeat": 0, "difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    val = {"full": 0.4, "without a_b": 0.45, "without c": 0.41, "without d": 0.39, "without e": 0.5, "without f": 0.42}
    rows = [
        {**run, "variant": name, "group": name.split()[0], "validation": v, "value": 1.0 - v} for name, v in val.items()
    ]
    rows.append({**run, "variant": "alone e", "group": "alone", "validation": 0.9, "value": 0.1})
    expected = "rises most without e (+0.100), without a b (+0.050), without f (+0.020)."
    assert carried(ablated(pd.DataFrame(rows)), 3).endswith(expected)
    assert carried(ablated(pd.DataFrame([rows[0], rows[3]])), 3) == "No part that is taken out raises the NLL on val."


def test_ablation_combines_runs() -> None:
    run = {"group": "without", "variant": "null", "metric": "nll", "reference": "full"}
    rows = [
        {**run, "repeat": 0, "validation": 0.3, "value": 0.4, "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.01},
        {**run, "repeat": 1, "validation": 0.4, "value": 0.6, "difference": 0.3, "low": 0.2, "high": 0.4, "p": 0.03},
    ]
    (found,) = ablated(pd.DataFrame(rows)).to_dict("records")
    assert (found["validation"], found["value"]) == (pytest.approx(0.35), pytest.approx(0.5))
    assert found["difference"] == pytest.approx(0.2)
    assert (found["low"], found["high"], found["runs"]) == (0.05, 0.4, 2)
    assert found["p"] == pytest.approx(0.04)


def test_no_number_is_missing(page: tuple[str, Path]) -> None:
    for path in page[1].iterdir():
        assert not re.search(r"\bnan\b", path.read_text("utf-8")), path.name


def test_the_comparison_is_of_the_clean_runs_and_conditions_show_the_ends_of_their_runs(root: Path) -> None:
    run = read_runs(root / "metrics", root / "plots", ["cifar10_jpeg"], [SEED])
    rows = everywhere(run, "intervals").query("condition == 'clean' and method == 'uniform' and metric == 'nll'")
    assert list(rows["repeat"]) == [0, 1, 2], "evaluate's, and two of noise 0"
    (cell,) = [
        c["table"]["distance"]["nll"] for c in conditions(everywhere(run, "intervals"), 3) if c["condition"] == "clean"
    ]
    ends = everywhere(run, "intervals").query("condition == 'clean' and method == 'distance' and metric == 'nll'")
    assert cell.value == fixed(ends["value"].mean(), 3)
    assert cell.around == f"{fixed(ends['low'].min(), 3)} … {fixed(ends['high'].max(), 3)}"


def test_on_a_tie_the_best_tuned_is_the_baseline_to_beat() -> None:
    rows = paired(against={"uniform": 0.2, "distance_isotonic": 0.2, "distance_vector": 0.1})
    found = claimed.claims(rows, on_val(rows).assign(value=0.5))
    assert {c.roles for c in found if c.baseline == "distance_vector"} == {("best tuned", "to beat")}


def test_the_page_says_when_nothing_can_be_decided(page: tuple[str, Path]) -> None:
    assert "fewer than 20 test rows are wrong under either method" in " ".join(page[0].split())


def test_only_the_datasets_asked_for_and_under_their_names(page: tuple[str, Path]) -> None:
    text, out = page
    for name in ("index.html", "results.md", "comparison.csv", "comparison.tex"):
        content = (out / name).read_text("utf-8")
        assert "dropped" not in content
        assert "CIFAR-10" not in content
        assert "cifar10" in content
    assert "cifar10_jpeg" in text


def test_the_same_inputs_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    for name in ("once", "twice"):
        report(root, tmp_path / name, ("iris",))
    for path in (tmp_path / "once").iterdir():
        assert path.read_bytes() == (tmp_path / "twice" / path.name).read_bytes()


def test_tables_hold_the_numbers_of_the_stages(page: tuple[str, Path], root: Path) -> None:
    out = page[1]
    with (root / "plots/intervals/iris-42.csv").open() as file:
        given = list(csv.DictReader(file))
    with (out / "comparison.csv").open() as file:
        ours = [row for row in csv.DictReader(file) if row["dataset"] == "iris" and row["condition"] == "clean"]
    for mine, theirs in zip(ours, given, strict=True):
        assert mine == {"dataset": "iris", "seed": "42", **mine}
        assert float(mine["value"]) == pytest.approx(float(theirs["value"]), rel=1e-12)
    nll = next(float(row["value"]) for row in given if row["method"] == "attention" and row["metric"] == "nll")
    section = (out / "results.md").read_text("utf-8").split("### iris")[1].split("###")[0]
    line = next(line for line in section.splitlines() if line.startswith("| Attention"))
    assert f"{nll:.3f}" in line.split("|")[4]
    tex = (out / "comparison.tex").read_text("utf-8")
    assert tex.count("\\\\\n") == 1 + 3 * (1 + 7)
    assert re.search(r"(?<!\\)[_%](?! needs)", tex) is None


def test_the_best_value_is_marked_in_the_right_direction(page: tuple[str, Path]) -> None:
    """`cifar10_jpeg` is made so that attention is far ahead in all scores."""
    section = (page[1] / "results.md").read_text("utf-8").split("### cifar10_jpeg")[1]
    line = next(line for line in section.splitlines() if line.startswith("| Attention"))
    cells = line.split("|")[2:7]
    assert all("**" in cell for cell in cells[:4])


def test_several_seeds_show_mean_and_each(root: Path, tmp_path: Path) -> None:
    text = report(root, tmp_path / "report", ("digits",), (42, 7))
    Reader(text)
    assert "2 seeds; mean ± standard deviation" in text
    assert "Each seed, with its bootstrap interval" in text
    assert "±" in (tmp_path / "report/results.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("metrics/iris/42/tuned.json", "dvc repro evaluate@iris-42"),
        ("metrics/iris/42/prepare.json", "dvc repro prepare@iris-42"),
        ("metrics/iris/42/headroom.json", "dvc repro evaluate@iris-42"),
        ("plots/training/iris-42.csv", "dvc repro train_embedder@iris-42"),
        ("plots/validation/iris-42.csv", "dvc repro evaluate@iris-42"),
        ("plots/noise_paired/cifar10_jpeg-42.csv", "dvc repro noise@cifar10_jpeg-42"),
        ("plots/imbalance/cifar10_jpeg-42.csv", "dvc repro imbalance@cifar10_jpeg-42"),
    ],
)
def test_a_missing_file_is_named_with_its_mend(root: Path, tmp_path: Path, file: str, command: str) -> None:
    shutil.copytree(root, tmp_path / "r")
    (tmp_path / "r" / file).unlink()
    out = tmp_path / "report"
    out.mkdir()
    (out / "index.html").write_text("earlier")
    with pytest.raises(InputError) as error:
        report(tmp_path / "r", out)
    assert file in str(error.value)
    assert command in str(error.value)
    assert (out / "index.html").read_text() == "earlier"


@pytest.mark.parametrize(("text", "message"), [("", "no valid CSV"), ("a,b\n1,2\n", "no column method")])
def test_a_damaged_table_is_named(root: Path, tmp_path: Path, text: str, message: str) -> None:
    shutil.copytree(root, tmp_path / "r")
    (tmp_path / "r/plots/paired/iris-42.csv").write_text(text)
    with pytest.raises(InputError, match=rf"paired/iris-42\.csv: {message}"):
        report(tmp_path / "r", tmp_path / "report")


def test_the_gap_to_the_linear_head_is_told(page: tuple[str, Path], root: Path) -> None:
    import pandas as pd

    table = pd.read_csv(root / f"plots/intervals/iris-{SEED}.csv").query("metric == 'nll'").set_index("method")["value"]
    gap = table["attention"] / table["linear_temperature"] - 1
    where = "above" if gap > 0 else "below"
    said = f"NLL is {abs(gap):.1%} {where} that of the encoder&#39;s own linear head with temperature"
    assert said in page[0]

import csv
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from attnknn.errors import InputError
from attnknn.report.build import write_report
from attnknn.report.claims import answer, claims, headline, holm, sentence
from attnknn.report.tables import fixed, p_value
from closure import ROOT
from results import LOSS, TIE, WIN, write_results

DATASETS, SEED = ("digits", "iris", "cifar10_jpeg"), 42


def paired(
    dataset: str = "digits",
    seed: int = 0,
    gain: float = 0.1,
    p: float = 1e-6,
    errors: int = 100,
    against: dict[str, float] | None = None,
) -> list[dict]:
    """Rows in which attention is better by `gain` (NLL and ECE lower, accuracy higher) than every baseline."""
    gains = against or {"uniform": 2 * gain, "distance": 1.5 * gain, "distance_vector": gain}
    rows = []
    for baseline, by in gains.items():
        for metric, sign in (("accuracy", 1), ("nll", -1), ("ece", -1)):
            d = sign * by
            row = {"dataset": dataset, "seed": seed, "method": "attention", "baseline": baseline, "metric": metric}
            rows.append({**row, "difference": d, "low": d - 0.01, "high": d + 0.01, "errors": errors, "p": p})
    return rows


def test_where_hardly_a_row_is_wrong_nothing_is_decided() -> None:
    assert {c.verdict for c in claims(paired(errors=20))} == {"yes"}
    assert {c.verdict for c in claims(paired(errors=19))} == {"undecided"}
    seeds = paired(seed=0, errors=50) + paired(seed=1, errors=3)
    assert {(c.errors, c.verdict) for c in claims(seeds)} == {(3, "undecided")}


def test_holm_by_hand() -> None:
    """Sorted .01, .02, .03, .5 times 4, 3, 2, 1 is .04, .06, .06, .5: never smaller than the one before."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize(("gain", "expected"), [(0.1, "yes"), (-0.1, "no")])
def test_better_is_yes_and_worse_is_no_in_every_metric(gain: float, expected: str) -> None:
    found = claims(paired(against={"uniform": 3 * abs(gain), "distance_vector": gain}))
    assert {c.verdict for c in found} == {expected}
    assert answer(found) == expected


def test_undecided_from_alpha_upwards() -> None:
    """Three claims, so Holm takes the smallest p three times."""
    assert {c.verdict for c in claims(paired(p=0.01 / 3 + 1e-9))} == {"undecided"}
    assert {c.verdict for c in claims(paired(p=0.01 / 3 - 1e-9))} == {"yes"}
    assert {c.verdict for c in claims(paired(p=0.04 / 3), alpha=0.05)} == {"yes"}


def test_more_datasets_make_each_claim_harder() -> None:
    one, ten = paired(p=0.003), [row for i in range(10) for row in paired(f"d{i}", p=0.003)]
    assert {c.verdict for c in claims(one)} == {"yes"}
    assert {c.verdict for c in claims(ten)} == {"undecided"}


def test_the_best_baseline_is_the_hardest_to_beat_and_never_the_linear_head() -> None:
    rows = paired(against={"uniform": 0.3, "distance": 0.1, "distance_vector": 0.2, "linear": -5.0})
    found = [(c.metric, c.baseline, c.roles) for c in claims(rows)]
    assert found == [
        (metric, baseline, roles)
        for metric in ("nll", "accuracy", "ece")
        for baseline, roles in (("distance", ("best tuned",)), ("distance_vector", ("to beat",)))
    ]


def test_seeds_must_agree_in_sign_whatever_p() -> None:
    agree = paired(seed=0, gain=0.1) + paired(seed=1, gain=0.2)
    assert {c.verdict for c in claims(agree)} == {"yes"}
    differ = paired(seed=0, gain=0.5) + paired(seed=1, gain=-0.01)
    assert {c.verdict for c in claims(differ)} == {"undecided"}


def test_seeds_are_combined_as_twice_the_mean_p() -> None:
    first, *_ = claims(paired(seed=0, gain=0.1, p=0.001) + paired(seed=1, gain=0.3, p=0.003))
    assert first.p == pytest.approx(3 * 2 * 0.002)
    assert first.difference == pytest.approx(-0.2)
    assert (first.low, first.high) == (pytest.approx(-0.31), pytest.approx(-0.09))


def test_no_difference_is_never_decided() -> None:
    assert {c.verdict for c in claims(paired(gain=0.0, p=0.0))} == {"undecided"}


def test_a_lower_nll_that_costs_accuracy_is_no() -> None:
    rows = [row | {"difference": -0.1} for row in paired()]
    found = claims(rows)
    assert {c.metric: c.verdict for c in found} == {"nll": "yes", "accuracy": "no", "ece": "yes"}
    assert answer(found) == "no"
    assert "better in NLL and ECE, worse in accuracy" in sentence(found)


def test_the_first_words_are_where_attention_does_not_win() -> None:
    words = headline({"adult": "yes", "digits": "no", "iris": "undecided"})
    assert words.startswith("Learned attention does not pay on digits")
    assert words.index("iris") < words.index("adult")
    assert headline({"adult": "yes"}).startswith("Learned attention pays on adult")


def test_a_missing_baseline_is_told() -> None:
    with pytest.raises(InputError, match="digits has no nll row against distance_vector"):
        claims(paired(against={"uniform": 0.1}))


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
    assert text.index("does not pay on digits") < text.index("<table>")


def test_the_page_says_when_nothing_can_be_decided(page: tuple[str, Path]) -> None:
    assert "fewer than 20 test rows are wrong under either method" in " ".join(page[0].split())


def test_too_few_resamples_are_told(page: tuple[str, Path], root: Path, tmp_path: Path) -> None:
    assert "100 bootstrap resamples are few" in page[0]
    params = settings(resamples=10_000)
    write_report(root / "metrics", root / "plots", tmp_path / "r", ("iris",), (SEED,), params, "abc")
    assert "resamples are few" not in (tmp_path / "r/index.html").read_text("utf-8")


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
        ours = [row for row in csv.DictReader(file) if row["dataset"] == "iris"]
    for mine, theirs in zip(ours, given, strict=True):
        assert mine == {"dataset": "iris", "seed": "42", **mine}
        assert float(mine["value"]) == pytest.approx(float(theirs["value"]), rel=1e-12)
    nll = next(float(row["value"]) for row in given if row["method"] == "attention" and row["metric"] == "nll")
    section = (out / "results.md").read_text("utf-8").split("### iris")[1].split("###")[0]
    line = next(line for line in section.splitlines() if line.startswith("| Attention"))
    assert f"{nll:.3f}" in line.split("|")[4]
    tex = (out / "comparison.tex").read_text("utf-8")
    assert tex.count("\\\\\n") == 1 + 3 * (1 + 6)
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
        ("plots/training/iris-42.csv", "dvc repro train_embedder@iris-42"),
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

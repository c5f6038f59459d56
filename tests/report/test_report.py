"""The report page and its tables, from synthetic results."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnknn.core.errors import InputError
from attnknn.evaluation import method
from attnknn.evaluation.paired_tests import BASE, FOLDS
from attnknn.experiments.corruption import NOISES, noise_conditions
from attnknn.report.build import read_all, write_report
from attnknn.report.plots import CALIBRATIONS, METHODS
from attnknn.report.results import Run
from attnknn.report.section import Cell, Table, as_frame, as_markdown, as_tex
from attnknn.report.sections.ablation import ablated
from attnknn.report.sections.calibration import calibrations
from attnknn.report.sections.conditions import table as conditions
from attnknn.report.sections.noise import KINDS
from attnknn.report.tables import fixed
from import_closure import ROOT
from pipeline.settings import report_settings
from synthetic_results import LOSS, TIE, VARIANTS, WIN, write_ablation, write_conditions, write_results

DATASETS, SEED = ("digits", "iris", "cifar10_jpeg"), 42


def report(root: Path, out: Path, datasets: tuple[str, ...] = DATASETS, seeds: tuple[int, ...] = (SEED,)) -> str:
    params = report_settings(ROOT)
    params = {**params, "evaluate": {**params["evaluate"], "resamples": 100}}
    folders = (root / "metrics", root / "plots", root / "plots", out)
    write_report(*folders, datasets, seeds, params, "abc1234 of 2026-01-02")
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


def test_page_is_self_contained(page: tuple[str, Path]) -> None:
    text, out = page
    reader = Reader(text)
    assert reader.open == []
    assert not {"script", "link", "iframe"} & set(reader.tags)
    outside = [link for link in reader.links if not link.startswith(("data:image/png;base64,", "#"))]
    assert sorted(outside) == ["comparison.csv", "results.md", "tables"]
    assert all((out / name).exists() for name in outside)
    anchors = [link[1:] for link in reader.links if link.startswith("#")]
    assert all(f'id="{name}"' in text for name in anchors)


def test_summary_has_a_row_per_dataset_with_both_verdicts(page: tuple[str, Path]) -> None:
    text, out = page
    assert text.index("best without neighbours") < text.index("<img") < text.index('<section id="')
    rows = pd.read_csv(out / "tables" / "summary.csv").set_index("dataset")
    for column in ("NLL against best kNN", "against best without neighbours"):
        signs = rows[column].str.extract(r"^no significant difference \(([+−])[\d.]+ \([+−][\d.]+ … [+−][\d.]+\)\)$")[0]
        assert signs.to_dict() | {"iris": ""} == {"digits": "+", "iris": "", "cifar10_jpeg": "−"}
    assert (rows["errors"] >= 20).all()


def test_claims_of_every_condition_are_folded_below_the_summary(page: tuple[str, Path]) -> None:
    """digits, iris and five conditions of cifar10_jpeg, three metrics each, against two opponents."""
    rows = pd.read_csv(page[1] / "tables" / "claims.csv")
    assert len(rows) == 7 * 3 * 2
    clean = int(rows["group"].str.contains(", clean").sum())
    sizes = f"the {clean} claims on the clean bank, which are the primary ones, and the {len(rows) - clean} on modified"
    assert page[0].count(sizes) == 1
    assert rows["than"].str.contains("without neighbours").sum() == 7 * 3
    assert {"cifar10_jpeg, noise 0.3", "cifar10_jpeg, long tail 0.01"} <= set(rows["group"])
    shown = page[0].split("Claims: is attention better")[1].split("</table>")[0]
    assert shown.count("<tr><th>") == 1 + len(rows), "the head, and one each"


def sections(text: str) -> dict[str, str]:
    return dict(re.findall(r'<section id="(\w+)">(.*?)</section>', text, flags=re.DOTALL))


def test_sections_in_order_with_the_datasets_of_their_experiment(page: tuple[str, Path]) -> None:
    shown = sections(page[0])
    assert " ".join(shown) == "evaluate calibration noise imbalance ablation historic training provenance"
    for name in ("noise", "imbalance", "ablation"):
        assert re.findall(r"<h3>(\w+)", shown[name]) == ["cifar10_jpeg"]
    for name in ("evaluate", "calibration", "training"):
        assert re.findall(r"<h3>(\w+)", shown[name]) == list(DATASETS)
    for name in ("noise", "imbalance"):  # the setting of the missing experiment is named
        assert "train_corrupted.seeds=[42]" in shown[name]
    assert "<td>0.861</td>" in shown["evaluate"], "the upper bound"


def test_ablation_shows_val_and_test(page: tuple[str, Path], root: Path) -> None:
    shown = pd.read_csv(page[1] / "tables" / "ablation_cifar10_jpeg_ablation.csv", dtype=str, keep_default_na=False)
    shown = shown.set_index("variant")
    assert set(shown.index) == {name.replace("_", " ") for name in VARIANTS}
    rows = pd.read_csv(root / "plots" / "ablation" / f"cifar10_jpeg-{SEED}.csv").query("metric == 'nll'")
    for name in ("agreement", "temperature"):
        means = rows[rows["variant"] == name][["validation", "value"]].mean()
        val, test = (fixed(float(mean), 3) for mean in means)
        assert val != test
        assert (shown.loc[name, "NLL on val ↓"], shown.loc[name, "NLL ↓"]) == (val, test)
    assert shown.loc["full", "difference"] == "", "itself"


def test_table_formats_agree() -> None:
    rows = [["first"], ["a_b", Cell("1", "0 … 2", best=True)], ["second"], ["c|d", Cell("3")], ["e", Cell("5%")]]
    table = Table("t", "50% of it", ["name", "value"], rows)
    assert as_markdown(table).splitlines() == [
        "| group | name | value |",
        "| --- | --- | --- |",
        "| first | a_b | **1** (0 … 2) |",
        "| second | c\\|d | 3 |",
        "|  | e | 5% |",
    ]
    frame = as_frame(table)
    assert list(frame["group"]) == ["first", "second", "second"]
    assert list(frame["value"]) == ["1 (0 … 2)", "3", "5%"]
    tex = as_tex(table)
    assert all(text in tex for text in ("\\toprule", "a\\_b", "5\\%"))
    assert re.search(r"(?<!\\)[_%&](?=[^&]*a_b)", tex) is None


def test_calibrations_of_every_method() -> None:
    """The best of each method is bold, means over seeds."""
    base, calibrated = {"distance": 0.5, "attention": 0.35}, {"distance_vector": 0.3, "attention_vector": 0.4}
    runs = []
    for seed, shift in ((1, -0.1), (2, 0.1)):
        first, second = (
            {m: {"nll": nll + shift, "ece": 0.1} for m, nll in part.items()} for part in (base, calibrated)
        )
        runs.append(Run("digits", seed, {"prepare": {"test": 100}, "evaluate": first, "calibration": second}, {}))
    table = calibrations(runs)[0]
    assert list(table.head) == ["method", "uncalibrated", "+ vector scaling"]
    assert [[c.value if isinstance(c, Cell) else c for c in row] for row in table.rows] == [
        ["Distance-weighted kNN", "0.500", "0.300"],
        ["Attention", "0.350", "0.400"],
    ]
    assert [[c.best for c in row[1:] if isinstance(c, Cell)] for row in table.rows] == [[False, True], [True, False]]


def test_missing_column_is_refused(tmp_path: Path) -> None:
    write_results(tmp_path, "digits", 3, WIN)
    write_ablation(tmp_path, "digits", 3)
    path = tmp_path / "plots" / "ablation" / "digits-3.csv"
    pd.read_csv(path).drop(columns="validation").to_csv(path, index=False)
    with pytest.raises(InputError, match=r"ablation.*validation"):
        read_all(tmp_path / "metrics", tmp_path / "plots", ["digits"], [3])


def test_ablation_over_runs() -> None:
    run = {"group": "without", "variant": "null", "metric": "nll", "reference": "full"}
    rows = [
        {**run, "repeat": 0, "validation": 0.3, "value": 0.4, "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.01},
        {**run, "repeat": 1, "validation": 0.4, "value": 0.6, "difference": 0.3, "low": 0.2, "high": 0.4, "p": 0.03},
    ]
    (row,) = ablated(pd.DataFrame(rows)).to_dict("records")
    expected = {"validation": 0.35, "value": 0.5, "difference": 0.2, "low": 0.05, "high": 0.4, "runs": 2, "p": 0.04}
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_conditions_show_roles_with_the_clean_bank_first(root: Path) -> None:
    run = read_all(root / "metrics", root / "plots", ["cifar10_jpeg"], [SEED])
    row = run[0].tables["noise"].query("condition == 'noise 0.3' and role == 'kNN' and metric == 'nll'").iloc[0]
    frame = as_frame(conditions(run, KINDS, ("nll",))).set_index(["group", "method"])
    value, low, high = (fixed(row[key], 3) for key in ("value", "low", "high"))
    assert frame.loc[("noise 0.3", "Best kNN"), "NLL"] == f"{value} ({low} … {high})"
    groups = list(dict.fromkeys(frame.index.get_level_values(0)))
    assert groups == ["clean", "noise 0.3", "noise 0.6"], "noise 0 is the clean bank"


def test_only_the_selected_datasets_and_no_nan(page: tuple[str, Path]) -> None:
    text, out = page
    for path in (p for p in out.rglob("*") if p.is_file()):
        assert not re.search(r"\bnan\b", path.read_text("utf-8")), path.name
    for name in ("index.html", "results.md", "comparison.csv", "tables/claims.tex"):
        content = (out / name).read_text("utf-8")
        assert "dropped" not in content
        assert name == "index.html" or "CIFAR-10" not in content, "the section on the historic study names it"
        assert "cifar10" in content.replace("\\_", "_")
    assert "cifar10_jpeg" in text


def test_output_is_deterministic_and_an_empty_table_leaves_its_section_out(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "r")
    head, *rows = (root / f"plots/ablation/cifar10_jpeg-{SEED}.csv").read_text().splitlines(keepends=True)
    for name, lines in (("once", []), ("twice", []), ("filled", rows)):
        (tmp_path / "r/plots/ablation/iris-42.csv").write_text("".join([head, *lines]))
        assert ("ablation" in sections(report(tmp_path / "r", tmp_path / name, ("iris",)))) == (name == "filled")
    paths = [p for p in (tmp_path / "once").rglob("*") if p.is_file()]
    assert len(paths) > 10
    for path in paths:
        assert path.read_bytes() == (tmp_path / "twice" / path.relative_to(tmp_path / "once")).read_bytes()


def test_tables_hold_the_numbers_of_the_plots(page: tuple[str, Path], root: Path) -> None:
    out = page[1]
    plotted = pd.read_csv(root / "plots/intervals/iris-42.csv")
    rows = pd.read_csv(out / "comparison.csv").query("dataset == 'iris' and condition == 'clean'")
    assert set(rows["seed"]) == {42}
    np.testing.assert_allclose(rows["value"], plotted["value"], rtol=1e-12)
    (nll,) = plotted.query("method == 'attention' and metric == 'nll'")["value"]
    assert f"{nll:.3f}" in scores_of_attention(out, "iris")[3]
    tex = (out / "tables" / "evaluate_iris_methods.tex").read_text("utf-8")
    assert tex.count("\\\\\n") == 1 + 7


def scores_of_attention(out: Path, dataset: str) -> list[str]:
    section = (out / "results.md").read_text("utf-8").split(f"#### {dataset}\n")[1]
    return next(line for line in section.splitlines() if line.startswith("| Attention")).split("|")[2:7]


def test_best_value_is_bold(page: tuple[str, Path]) -> None:
    """In `cifar10_jpeg` attention is best in all scores."""
    assert all("**" in cell for cell in scores_of_attention(page[1], "cifar10_jpeg")[:4])


def test_several_seeds_show_mean_and_deviation(root: Path, tmp_path: Path) -> None:
    text = report(root, tmp_path / "report", ("digits",), (42, 7))
    Reader(text)
    assert "mean ± standard deviation over seeds" in text
    assert "±" in (tmp_path / "report/results.md").read_text("utf-8")


def test_every_method_calibration_and_noise_kind_is_shown() -> None:
    assert tuple(METHODS) == (*BASE[:4], *FOLDS, *BASE[4:])
    assert set(method.KINDS) <= set(CALIBRATIONS)
    assert {name.rpartition(" ")[0] for name in noise_conditions(NOISES, [0.1])} == set(KINDS)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        *((f"metrics/iris/42/{name}.json", None, "no such file") for name in ("tuned", "prepare", "headroom")),
        *((f"plots/{name}/iris-42.csv", None, "no such file") for name in ("training", "intervals")),
        ("plots/intervals/iris-42.csv", "", "no valid CSV"),
        ("plots/intervals/iris-42.csv", "a,b\n1,2\n", "no column role"),
    ],
)
def test_missing_and_damaged_files_are_named(
    root: Path, tmp_path: Path, file: str, text: str | None, message: str
) -> None:
    shutil.copytree(root, tmp_path / "r")
    (tmp_path / "r" / file).unlink()
    if text is None:
        message += "; run `dvc repro`"
    else:
        (tmp_path / "r" / file).write_text(text)
    out = tmp_path / "report"
    out.mkdir()
    (out / "index.html").write_text("earlier")
    with pytest.raises(InputError, match=f"{file}: {message}"):
        report(tmp_path / "r", out)
    assert (out / "index.html").read_text() == "earlier"

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
from attnknn.evaluation.opponents import ROBUST
from attnknn.evaluation.paired_tests import BASE, FOLDS
from attnknn.report.names import CALIBRATIONS, METHODS
from attnknn.report.page import write_report
from attnknn.report.tables import Cell, Table, as_frame, as_markdown, as_tex, fixed
from import_closure import ROOT
from pipeline.settings import report_settings
from synthetic_results import LOSS, TIE, WIN, write_ablation, write_conditions, write_results

DATASETS, SEED = ("digits", "iris", "cifar10_jpeg"), 42


def report(root: Path, out: Path, datasets: tuple[str, ...] = DATASETS, seeds: tuple[int, ...] = (SEED,)) -> str:
    write_report(root, out, datasets, seeds, report_settings(ROOT), "abc1234 of 2026-01-02")
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
    assert sorted(outside) == ["comparison.csv", "tables"]
    assert all((out / name).exists() for name in outside)
    anchors = [link[1:] for link in reader.links if link.startswith("#")]
    assert all(f'id="{name}"' in text for name in anchors)


def test_summary_has_a_row_per_dataset_with_both_verdicts(page: tuple[str, Path]) -> None:
    text, out = page
    assert text.index("best without neighbours") < text.index("<img") < text.index('<section id="')
    rows = pd.read_csv(out / "tables" / "summary.csv").set_index("dataset")
    for column in ("NLL: attention − best kNN", "best attention − best without neighbours"):
        signs = rows[column].str.extract(r"^([a-z ]+: [+−])[\d.]+ \([+−][\d.]+ … [+−][\d.]+\)$")[0]
        assert signs.drop("iris").to_dict() == {"digits": "worse: +", "cifar10_jpeg": "better: −"}
    assert (rows["errors"].str.split(" / ", expand=True).astype(int) >= 20).all(axis=None)


def test_claims_of_every_condition_are_folded_below_the_summary(page: tuple[str, Path]) -> None:
    """digits, iris and five conditions of cifar10_jpeg, three metrics each, against two opponents, twice."""
    rows = pd.read_csv(page[1] / "tables" / "claims.csv")
    assert len(rows) == 7 * 3 * 2 * 2
    assert rows["against"].str.contains("without neighbours").sum() == 7 * 3 * 2
    assert {"cifar10_jpeg, noise 0.3", "cifar10_jpeg, long tail 0.01"} <= set(rows["group"])
    decided = rows["errors"] >= 20
    assert decided.equals(~rows["verdict"].str.startswith("no verdict"))
    assert decided.equals(rows["p"].notna())
    assert (
        rows["family"].tolist() == (rows["group"].str.startswith("cifar10").map({True: 5, False: 1}) * decided).tolist()
    )


def test_the_first_line_counts_the_verdicts_of_every_condition(page: tuple[str, Path]) -> None:
    line = re.search(r"</h1>\s*<p>(.*?)</p>", page[0])
    assert line
    rows = pd.read_csv(page[1] / "tables" / "claims.csv")
    for ours, role in (("attention", "kNN"), ("best attention", "without neighbours")):
        own = rows[(rows["score"] == f"{ours}: NLL") & rows["against"].str.contains(f"best {role}")]
        verdicts = own["verdict"].str.replace(r"no verdict.*", "no verdict", regex=True)
        (counted,) = re.findall(rf"{ours} against the best {role}: ([^;]*)[;.]", line[1])
        expected = {name: int((verdicts == name).sum()) for name in ("better", "worse", "no significant difference")}
        expected["no verdict"] = 7 - sum(expected.values())
        assert counted == ", ".join(f"{name} {number}" for name, number in expected.items())
        assert expected["better"] >= 1 <= expected["worse"]


def test_nothing_is_clipped_at_any_width(root: Path, tmp_path: Path) -> None:
    """Folded tables scroll in their own boxes below 1024 pixels."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on PATH")
    report(root, tmp_path / "report", ("digits", "cifar10_jpeg"))
    clipped = """all => all.filter(e => e.checkVisibility() && e.clientWidth && e.scrollWidth > e.clientWidth)
        .filter(e => !e.closest("nav"))
        .map(e => `${e.closest("[id]")?.id} ${e.tagName} ${e.scrollWidth} > ${e.clientWidth}`)"""
    with playwright.sync_playwright() as started:
        view = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        view.goto((tmp_path / "report/index.html").as_uri())
        for width in (390, 768, 1024, 1280):
            view.set_viewport_size({"width": width, "height": 800})
            if width == 1024:
                view.locator("details").evaluate_all("all => all.forEach(e => { e.open = true; })")
            assert view.locator("html, body *").evaluate_all(clipped) == [], width


def shown_sections(text: str) -> dict[str, str]:
    return dict(re.findall(r'<section id="(\w+)">(.*?)</section>', text, flags=re.DOTALL))


def test_sections_in_order(page: tuple[str, Path]) -> None:
    shown = shown_sections(page[0])
    assert " ".join(shown) == "evaluate calibration noise imbalance ablation historic training provenance"
    for name in ("noise", "imbalance", "ablation"):
        assert "iris" not in shown[name], "its experiment did not run"
        assert "cifar10_jpeg" in shown[name]
    assert ">0.861" in shown["evaluate"], "the upper bound"


def test_conditions_have_their_verdict_by_rate(page: tuple[str, Path], root: Path) -> None:
    rates = pd.read_csv(page[1] / "tables" / "noise_by_rate.csv").set_index(["group", "rate"])
    rows = pd.read_csv(root / f"plots/noise/cifar10_jpeg-{SEED}.csv")
    row = rows.query("condition == 'noise 0.6' and role == 'kNN' and metric == 'nll'").iloc[0]
    assert list(rates.index) == [("cifar10_jpeg, noise", 0.3), ("cifar10_jpeg, noise", 0.6)], (
        "noise 0 is the clean bank"
    )
    assert fixed(row["difference"], 4, True) in rates.loc[("cifar10_jpeg, noise", 0.6), "attention − best kNN"]
    scores = pd.read_csv(page[1] / "tables" / "noise_scores.csv").set_index(["group", "method"])
    assert scores.loc[("cifar10_jpeg, noise 0.6", "Best kNN"), "NLL ↓"].startswith(fixed(row["value"], 3))


def test_table_formats_agree() -> None:
    rows = [
        ["first"],
        ["a_b", Cell("1", "0 … 2", best=True)],
        ["second"],
        ["c|d", Cell("3", best=True)],
        ["e", Cell("5%")],
    ]
    table = Table("t", "50% of it", ["name", "value"], rows)
    assert as_markdown(table).splitlines() == [
        "| group | name | value |",
        "| --- | --- | --- |",
        "| first | a_b | **1** (0 … 2) |",
        "| second | c\\|d | **3** |",
        "|  | e | 5% |",
    ]
    frame = as_frame(table)
    assert list(frame["group"]) == ["first", "second", "second"]
    assert list(frame["value"]) == ["1 (0 … 2)", "3", "5%"]
    tex = as_tex(table)
    assert all(text in tex for text in ("\\toprule", "a\\_b", "5\\%"))
    assert re.search(r"(?<!\\)[_%&](?=[^&]*a_b)", tex) is None


def test_only_the_selected_datasets_and_no_nan(page: tuple[str, Path]) -> None:
    for path in (p for p in page[1].rglob("*") if p.is_file()):
        assert not re.search(r"\bnan\b", path.read_text("utf-8")), path.name
        assert "dropped" not in path.read_text("utf-8")


def test_output_is_deterministic_and_an_empty_table_leaves_its_section_out(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "r")
    head, *rows = (root / f"plots/ablation/cifar10_jpeg-{SEED}.csv").read_text().splitlines(keepends=True)
    for name, lines in (("once", []), ("twice", []), ("filled", rows)):
        (tmp_path / "r/plots/ablation/iris-42.csv").write_text("".join([head, *lines]))
        shown = shown_sections(report(tmp_path / "r", tmp_path / name, ("iris",)))
        assert ("ablation" in shown) == (name == "filled")
    paths = [p for p in (tmp_path / "once").rglob("*") if p.is_file()]
    assert len(paths) > 10
    for path in paths:
        assert path.read_bytes() == (tmp_path / "twice" / path.relative_to(tmp_path / "once")).read_bytes()


def test_tables_hold_the_numbers_of_the_plots(page: tuple[str, Path], root: Path) -> None:
    """In `cifar10_jpeg` attention is best in all scores."""
    out = page[1]
    plotted = pd.read_csv(root / "plots/intervals/iris-42.csv")
    rows = pd.read_csv(out / "comparison.csv").query("dataset == 'iris' and condition == 'clean'")
    for ours in ("attention", "best attention"):
        pairs = [table[table["ours"] == ours]["value"] for table in (rows, plotted)]
        np.testing.assert_allclose(*pairs, rtol=1e-12)
    plotted = plotted.query("ours == 'attention'")
    (nll,) = plotted.query("method == 'attention' and metric == 'nll'")["value"]
    scores = pd.read_csv(out / "tables" / "evaluate_methods.csv").set_index(["group", "method"])
    assert scores.loc[("iris", "Attention"), "NLL ↓"].startswith(f"{nll:.3f} (")
    own = re.split(r">cifar10_jpeg\s*</th></tr>", page[0])[1]
    bold = re.search(r'<tr class="ours">(.*?)</tr>', own, re.DOTALL)
    assert bold is not None
    assert bold.group(1).count('class="best"') == bold.group(1).count("<td") == 8


def test_several_seeds_show_mean_and_deviation(root: Path, tmp_path: Path) -> None:
    report(root, tmp_path / "report", ("digits",), (42, 7))
    scores = pd.read_csv(tmp_path / "report/tables/evaluate_methods.csv").set_index("method")
    values = [pd.read_csv(root / f"plots/intervals/digits-{seed}.csv") for seed in (42, 7)]
    nll = [v.query("method == 'distance' and metric == 'nll'")["value"].iloc[0] for v in values]
    cell = f"{np.mean(nll):.3f} (± {np.std(nll, ddof=1):.3f})"
    assert scores.loc["Distance-weighted kNN", "NLL ↓"] == cell


def test_every_method_and_calibration_is_named() -> None:
    assert tuple(METHODS) == (*BASE[:6], *FOLDS, *BASE[6:], *ROBUST)
    assert set(method.KINDS) <= set(CALIBRATIONS)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics/iris/42/prepare.json", None, r"iris, seed 42: no results of prepare; run `dvc repro`"),
        ("plots/intervals/iris-42.csv", None, r"iris, seed 42: no results of intervals; run `dvc repro`"),
        ("plots/intervals/iris-42.csv", "", r"plots/intervals/iris-42\.csv: no valid CSV .*; run `dvc repro`"),
        (
            "plots/reliability/iris-42.csv",
            "a,b\n1,2\n",
            r"no column or value \['accuracy'\] in a table; ",
        ),
        ("metrics/iris/42/evaluate.json", "{", r"metrics/iris/42/evaluate\.json: "),
    ],
)
def test_missing_and_damaged_files_are_named(
    root: Path, tmp_path: Path, file: str, text: str | None, message: str
) -> None:
    shutil.copytree(root, tmp_path / "r")
    (tmp_path / "r" / file).unlink()
    if text is not None:
        (tmp_path / "r" / file).write_text(text)
    out = tmp_path / "report"
    out.mkdir()
    (out / "index.html").write_text("earlier")
    with pytest.raises(InputError, match=message):
        report(tmp_path / "r", out)
    assert (out / "index.html").read_text() == "earlier"

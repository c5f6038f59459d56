"""The published tables are written from metrics and plot data."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from import_closure import ROOT
from synthetic_results import WIN, write_conditions, write_results
from tools.results import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the tool runs."""
    for name in ("params.yaml", "datasets.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "presets").mkdir()
    shutil.copy(ROOT / "presets/none.yaml", tmp_path / "presets")
    (tmp_path / "README.md").write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_pages_and_provenance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page for each dataset whose full tables are here; provenance is that of the numbers, renewed with them."""
    for name, seed in (("birds", 3), ("fish", 4)):
        write_results(folder, name, seed, WIN)
    write_conditions(folder, "birds", 3, WIN)
    table = folder / "data/results/tta/birds/tta.csv"
    table.parent.mkdir(parents=True)
    table.write_text("a\n")
    main()
    readme, results = Path("README.md").read_text(), Path("RESULTS.md").read_text()
    assert readme.startswith("before\n<!-- results -->\n| dataset | best kNN | attention |")
    assert readme.endswith("<!-- /results -->\nafter\n")
    assert "old" not in readme
    assert all(
        re.search(rf"\| {name} \| [\d.]+ / [\d.]+ \(", text) for name in ("birds", "fish") for text in (readme, results)
    )
    assert Path("docs/assets/results.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in Path("docs/results").iterdir()} == {"birds.md", "provenance.json"}
    page = Path("docs/results/birds.md").read_text()
    assert "## All methods" in page
    assert "| birds, noise | 0.3 |" in page
    assert "code or settings have changed since its results" in capsys.readouterr().out, "no git here"

    path = Path("docs/results/provenance.json")
    stored = read_json(path)["birds"]
    assert {"revision", "date", "Python", "torch", "CPUs"} <= set(stored)
    assert stored["settings"]["k_eval"] > 0
    path.write_text(path.read_text().replace(stored["date"], "2020-01-02"))
    main()
    assert "2020-01-02" in Path("RESULTS.md").read_text(), "the same numbers keep their date"
    table.rename(folder / "kept.csv")
    main()
    assert "2020-01-02" in Path("RESULTS.md").read_text(), "a table that is not here changed nothing"
    (folder / "kept.csv").rename(table)
    edits = (
        lambda: write_results(folder, "birds", 3, {**WIN, "distance": (1.0, 2.0)}),
        lambda: table.write_text("b\n"),
    )
    for edit in edits:
        edit()
        main()
        dates = {name: own["date"] for name, own in read_json(path).items()}
        assert dates == {"birds": stored["date"], "fish": "2020-01-02"}
        path.write_text(path.read_text().replace(stored["date"], "2020-01-02"))


def test_errors(folder: Path) -> None:
    Path("README.md").write_text("no marks")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "tools.results"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (2, "error: metrics: nothing evaluated yet; run `dvc repro`\n")
    write_results(folder, "birds", 3, WIN)
    with pytest.raises(InputError, match="put the marks back"):
        main()
    assert Path("README.md").read_text() == "no marks"
    Path("params.yaml").unlink()
    with pytest.raises(InputError, match=r"^params\.yaml: no such file"):
        main()

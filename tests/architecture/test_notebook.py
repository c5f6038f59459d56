"""The notebook among the tutorials runs, and its stored outputs are those of its code."""

import nbformat
import pytest
from nbclient import NotebookClient

from import_closure import ROOT

NOTEBOOK = ROOT / "docs/tutorials/notebook.ipynb"


def kinds(cell: nbformat.NotebookNode) -> list[str]:
    return [kind for output in cell.outputs for kind in sorted(output.get("data", {"text/plain": ""}))]


def test_it_runs_and_shows_tables_and_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = [kinds(cell) for cell in code]
    # A slow cell sends what it prints in several pieces.
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", coalesce_streams=True)
    client.execute()  # raises where a cell does
    assert [kinds(cell) for cell in code] == stored
    assert {"image/png", "text/html"} <= {kind for cell in stored for kind in cell}

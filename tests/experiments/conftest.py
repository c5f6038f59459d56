"""Fixtures of the tests of experiments."""

import pytest

from attnknn.report import plots


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of sections stay empty: drawing them takes longer than all else."""
    for name in ("line_plot", "forest_plot", "bar_plot"):
        monkeypatch.setattr(plots, name, lambda *_, **__: b"")

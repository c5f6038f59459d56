"""Fixtures of the tests of experiments."""

import pytest

from attnknn.report import plots


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of sections are drawn but not written, which takes longest."""
    monkeypatch.setattr(plots, "as_png", lambda figure: b"")

"""Named axes are checked at run time in tests of the packages that have them; one thread, since the data are tiny."""

import os
import sys
from pathlib import Path

import jaxtyping
import pytest

ROOT = Path(__file__).parents[1]
# Before torch starts its threads; two threads on busy cores wait for each other longer than tiny work takes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(ROOT))
# Not the whole package: beartype would also check what a test passes wrongly on purpose.
_CHECKED = (
    "nn.augment", "nn.objectives", "nn.votes", "encoder.encoder", "encoder.losses", "neighbours.space",
    "heads.attention", "heads.baselines", "heads.classify", "heads.tabr",
)  # fmt: skip
jaxtyping.install_import_hook([f"attnknn.{name}" for name in _CHECKED], "beartype.beartype")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Elsewhere, and where heads are fitted again and again, the checks would take a third of the time of a fit."""
    package, name = item.path.parent.name, item.path.stem
    checked = package in ("nn", "encoder", "neighbours", "heads") and name != "test_label_noise"
    jaxtyping.config.update("jaxtyping_disable", not checked)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the pipeline, whose files take longest: the workers end together."""
    items.sort(key=lambda item: item.path.parent.name != "pipeline")

"""Named axes of public functions are checked at run time in every test; one thread, since the data are tiny."""

import os
import sys
from pathlib import Path

from jaxtyping import install_import_hook

ROOT = Path(__file__).parents[1]
# Before torch starts its threads; two threads on busy cores wait for each other longer than tiny work takes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(ROOT))
# Not the whole package: beartype would also check what a test passes wrongly on purpose.
_CHECKED = (
    "nn.augment", "nn.objectives", "nn.votes", "encoder.encoder", "encoder.losses", "neighbours.space",
    "heads.attention", "heads.baselines", "heads.classify", "heads.tabr",
)  # fmt: skip
install_import_hook([f"attnknn.{name}" for name in _CHECKED], "beartype.beartype")

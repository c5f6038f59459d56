"""torchvision imports with any build of torch; the tests of encoders and of data sets use it."""

import subprocess
import sys
from pathlib import Path

# One process, because schemas stay declared for as long as it lives. A stand-in package plays each kind of build.
SCRIPT = """
import importlib, sys, torch

def declared():
    return hasattr(torch.ops.torchvision, "nms")

def attempt(build):
    for name in [n for n in sys.modules if n in ("torchvision", "attnknn.core.torchvision_shim")]:
        del sys.modules[name]
    open(sys.argv[1] + "/torchvision/__init__.py", "w").write(build)
    importlib.invalidate_caches()
    return importlib.import_module("attnknn.core.torchvision_shim").torchvision

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
try:
    attempt("raise RuntimeError('libcudart is missing')")
except RuntimeError as error:
    print("other error:", error, declared())
print("fitting build:", attempt("kind = 'fitting'").kind, declared())
MISMATCHED = '''
import torch
@torch.library.register_fake("torchvision::nms")
def _(dets, scores, iou_threshold): ...
@torch.library.register_fake("torchvision::qnms")
def _(dets, scores, iou_threshold): ...
kind = "mismatched"
'''
print("mismatched build:", attempt(MISMATCHED).kind, declared())
"""


def test_builds_that_fit_that_do_not_and_that_fail_otherwise(tmp_path: Path) -> None:
    """Schemas are declared only after the one failure that they mend; any other failure is shown."""
    (tmp_path / "torchvision").mkdir()
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines() == [
        "other error: libcudart is missing False",
        "fitting build: fitting False",
        "mismatched build: mismatched True",
    ], run.stderr

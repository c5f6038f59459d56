"""torchvision imports with any build of torch, and its models and transforms work."""

import subprocess
import sys
from pathlib import Path

import torch

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


def test_models_and_batched_transforms_work() -> None:
    from attnknn.core.torchvision_shim import torchvision

    with torch.no_grad():
        assert torchvision.models.resnet18(num_classes=5).eval()(torch.zeros(2, 3, 33, 33)).shape == (2, 5)
    x = torch.arange(2 * 3 * 5 * 7, dtype=torch.uint8).reshape(2, 3, 5, 7)
    from torchvision.transforms import v2

    assert torch.equal(v2.functional.horizontal_flip(x), x.flip(-1))
    assert {"CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"} <= set(dir(torchvision.datasets))

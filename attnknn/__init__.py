"""Attn-KNN: attention-weighted k-nearest-neighbour classification."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.classifier.audit import expected_precision, summarise_label_issues
    from attnknn.classifier.estimator import AttnKNNClassifier
    from attnknn.classifier.label_issues import find_label_issues

__version__ = "0.4.0"
_MODULES = {
    "AttnKNNClassifier": "estimator",
    "find_label_issues": "label_issues",
    "summarise_label_issues": "audit",
    "expected_precision": "audit",
}
__all__ = ["AttnKNNClassifier", "__version__", "expected_precision", "find_label_issues", "summarise_label_issues"]


def __getattr__(name: str) -> Any:
    """Import on first use: the classifier needs torch, which takes a second."""
    if name in _MODULES:
        return getattr(import_module(f"attnknn.classifier.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

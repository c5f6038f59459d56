"""Attn-KNN: attention-weighted k-nearest-neighbour classification."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.classifier.audit import expected_precision, summarise_label_issues
    from attnknn.classifier.estimator import AttnKNNClassifier
    from attnknn.classifier.label_issues import find_label_issues
    from attnknn.classifier.pipelines import explain, novelty, predict_set
    from attnknn.data.table_encoder import TableEncoder

__version__ = "0.4.0"
_MODULES = {
    "AttnKNNClassifier": "classifier.estimator",
    "TableEncoder": "data.table_encoder",
    "expected_precision": "classifier.audit",
    "explain": "classifier.pipelines",
    "find_label_issues": "classifier.label_issues",
    "novelty": "classifier.pipelines",
    "predict_set": "classifier.pipelines",
    "summarise_label_issues": "classifier.audit",
}
__all__ = [
    "AttnKNNClassifier",
    "TableEncoder",
    "__version__",
    "expected_precision",
    "explain",
    "find_label_issues",
    "novelty",
    "predict_set",
    "summarise_label_issues",
]


def __getattr__(name: str) -> Any:
    """Import on first use: the classifier needs torch, which takes a second."""
    if name in _MODULES:
        return getattr(import_module(f"attnknn.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

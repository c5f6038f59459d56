"""Attn-KNN: attention-weighted k-nearest-neighbour classification."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.classifier.estimator import AttnKNNClassifier

__version__ = "0.4.0"
__all__ = ["AttnKNNClassifier", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the classifier on first use: it needs torch, which takes a second."""
    if name == "AttnKNNClassifier":
        from attnknn.classifier.estimator import AttnKNNClassifier

        return AttnKNNClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

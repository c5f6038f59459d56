"""A classifier with what people have around it: how pictures and rows become vectors, and what they look like."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.model.model import Cases, Model

__all__ = ["Cases", "Model"]


def __getattr__(name: str) -> Any:
    """Imported when first asked for: they need torch, and the command line asks for words alone."""
    if name in __all__:
        from attnknn.model import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

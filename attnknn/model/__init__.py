"""A classifier with what people have around it: how pictures and rows become vectors, and what they look like."""

from attnknn.model.model import Cases, Model

__all__ = ["Cases", "Model"]

"""Attn-KNN: attention-weighted k-nearest-neighbour classification."""

__version__ = "0.1.0"

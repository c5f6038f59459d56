"""Attn-KNN: attention-weighted k-nearest-neighbour classification."""

__version__ = "0.4.0"

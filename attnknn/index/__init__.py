"""Exact and approximate nearest-neighbour search; the only faiss imports."""

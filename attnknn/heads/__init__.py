"""Heads: how much each neighbour counts."""

"""Seeded random inputs of every kind, and one property that holds for all; see `judge`."""

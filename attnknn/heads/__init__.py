"""Heads: the weights of stored neighbours, learned (attention, TabR) or tuned (uniform, distance)."""

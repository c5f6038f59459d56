"""Encoders: networks, losses, training."""

"""Votes, objectives, augmentation, optimisers, checkpoints."""

"""Encoder ablation: compare all kNN methods in the spaces of encoders trained with other settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnknn.evaluation.paired_tests import Table, side_by_side
from attnknn.experiments.refit import fit_and_compare
from attnknn.neighbours.space import EmbeddingSpace

METHODS = ("distance", "distance_vector", "attention", "linear_temperature")


def compare_encoders(
    configured: EmbeddingSpace, variants: Mapping[str, Path], scoring: Mapping[str, Any], seed: int, **settings: Any
) -> Table:
    """Refit heads and baselines in each space; rows of `side_by_side`, the configured encoder first.

    Args:
        settings: of `fit_and_compare`.
    """
    spaces = {"configured": configured} | {name: EmbeddingSpace.load_whole(path) for name, path in variants.items()}
    predictions = {name: fit_and_compare([space], seed=seed, **settings).test for name, space in spaces.items()}
    return side_by_side(predictions, METHODS, scoring, seed)

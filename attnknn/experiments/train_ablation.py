"""Train variants of the configured encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnknn.core.artifacts import Split
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder
from attnknn.encoder.fit import NETWORK, fit_and_embed
from attnknn.neighbours.search import retrieve


def train_variants(
    variants: Mapping[str, TrainEmbedder], split: Split, search: Mapping[str, Any], seed: int, label: str, out: Path
) -> None:
    """Train an encoder per variant, and write the embedding spaces to folders 0, 1, … in `out`.

    Args:
        search: k_max, sizes, metric, device of `retrieve`.
    """
    for settings in variants.values():
        if settings.encoder == "vit":  # refused before others are trained
            Encoder("vit", split.x.shape[1:], 0, **settings.model_dump(include=NETWORK))
    for i, (name, settings) in enumerate(variants.items()):
        embeddings, _ = fit_and_embed(split, settings, seed, search["device"], f"{label} {name}")
        retrieve(embeddings, **search).save(out / str(i))

"""Names of variants, representations, readouts and tables; summaries of trained fields.

Imports neither torch nor scipy, which stages do not need for datasets without images.
"""

from pathlib import Path
from typing import Any

from attnknn.core.errors import require
from attnknn.core.files import read_json

# Context in training; `_nce` with a contrastive loss between two views, `_views` the same views without it.
VARIANTS = ("full", "sparse", "full_nce", "sparse_nce", "full_views", "sparse_views")
FINETUNED = ("sparse_nce", "sparse_views")  # start from sparse
MODES = ("full", "sparse")  # context of an image to be classified
PIXELS, ENCODER = "pixels", "encoder"  # representations that no field makes
KNN_READOUTS, PROBES = ("uniform", "distance", "attention"), ("linear_probe", "transformer")
# Tables of the stages `probe` and `field_report`, with their columns.
PROBE_TABLES = {
    "probe": ("mode", "representation", "readout", "metric", "value", "low", "high"),
    "probe_paired": (
        *("mode", "representation", "readout", "baseline", "baseline_readout", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
    "probe_agreement": ("mode", "readout", "against", "representations", "rho", "low", "high", "p"),
}
REPORT_TABLES = {
    "field_psnr": ("mode", "source", "baseline", "value", "low", "high"),
    "field_training": ("variant", "epoch", "loss", "mse", "contrast", "val_psnr"),
}


def trained_variants(fields: Path) -> dict[str, dict[str, Any]]:
    """Summaries of the trained fields in a folder, by variant; empty if there are none.

    Raises:
        InputError: no such folder.
    """
    require(fields.is_dir(), f"{fields}: no such folder; run `dvc repro`")
    summaries = {path.parent.name: read_json(path) for path in sorted(fields.glob("*/trained.json"))}
    return {variant: summary for variant, summary in summaries.items() if summary["size"] != "none"}

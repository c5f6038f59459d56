"""Latents of every image by every field, from the whole image and from a sparse context."""

from pathlib import Path

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.fields.variants import trained_variants
from stages.params import read_params, run


def main(dataset: str, seed: int, split: Path, fields: Path, out: Path) -> None:
    """Read SPLIT and FIELDS; write latents by field and mode to OUT, none if no field was trained."""
    p = read_params(dataset, "device", "threads")
    summaries = trained_variants(fields)
    with atomic_folder(out) as draft:
        common = {key: summary[key] for summary in summaries.values() for key in ("size", "share", "least")}
        write_json(draft / "latents.json", {"variants": list(summaries), **common})
        if not summaries:
            print(f"field_latents {dataset}/{seed}: no fields")
            return
        # These import torch, which tables do not need.
        from attnknn.core.device import use_device
        from attnknn.experiments.fields.latents import latents_of_variants

        device = use_device(p.device, p.threads)
        for latents in latents_of_variants(Split.load(split), fields, summaries, seed, device):
            latents.save(draft / latents.variant / latents.mode)


if __name__ == "__main__":
    run(main)

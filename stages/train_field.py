"""Train a field on the bank's images: to reconstruct them, and with `nce` to know them again from another view."""

from pathlib import Path
from types import SimpleNamespace

from attnknn.core.artifacts import BANK, VAL, Split
from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, write_json
from stages.params import read_params, run

FROM_SCRATCH = ("full", "sparse", "full_nce")  # sparse_nce goes on from sparse: stages/finetune_field.py
SHAPE = {"frequencies", "scale", "dims", "latents", "heads", "depth"}
LOOP = {"share", "warmup", "grad_clip", "temperature", "soft"}


def train(p: SimpleNamespace, variant: str, seed: int, split: Path, start: Path | None, state: Path, out: Path) -> None:
    """Write to OUT a field, new or that of START trained on; or that none is wanted, or that SPLIT holds no images."""
    t, data = p.train_field, Split.load(split)
    with atomic_folder(out) as draft:
        if t.size == "none" or not data.is_image:
            write_json(draft / "trained.json", {"size": "none", "history": []})
            print(f"no field {variant}: {'train_field.size is none' if data.is_image else 'these rows are no images'}")
            return
        # What needs torch is imported here: with nothing to train, as for tables, the stage takes no time.
        import torch

        from attnknn.core.device import use_device
        from attnknn.core.progress import epoch_progress
        from attnknn.experiments.fields.perceiver import Field, FieldConfig
        from attnknn.experiments.fields.training import train_field

        device, size, pixels = use_device(p.device, p.threads), t.sizes[t.size], data.x.shape
        loop = size.model_dump(exclude=SHAPE) | t.model_dump(include=LOOP) | {"augment": t.augment.model_dump()}
        if start is None:
            torch.manual_seed(seed)
            config = {"channels": pixels[1], "height": pixels[2], "width": pixels[3], "seed": seed}
            field = Field(FieldConfig(**config, **size.model_dump(include=SHAPE)))
        else:
            field, _ = Field.load(start / "field")
            loop["epochs"] = max(1, round(t.finetune.epochs * size.epochs))
            loop |= {"lr": t.finetune.rate * size.lr, "muon": t.finetune.rate * size.muon}
        loop["contrast_weight"] = t.contrast_weight if variant.endswith("_nce") else 0.0
        loop |= {"sampler": "full" if variant.startswith("full") else t.sampler, "seed": seed, "device": device}
        with epoch_progress(f"field {variant} {seed}", loop["epochs"]) as show:
            images = data.x[data.rows(BANK)], data.x[data.rows(VAL)]
            history = train_field(field, *images, **loop, resume=state, progress=show)
        field.save(draft / "field")
        known = {"share": t.share, "least": size.least}
        write_json(draft / "trained.json", {"size": t.size, **known, "bf16": size.bf16, "history": history})
    state.unlink(missing_ok=True)


def main(dataset: str, seed: int, variant: str, split: Path, state: Path, out: Path) -> None:
    """Read SPLIT; write the field to OUT; STATE is the place to resume from."""
    require(variant in FROM_SCRATCH, f"variant: {variant}; give one of {', '.join(FROM_SCRATCH)}")
    train(read_params(dataset, "train_field", "device", "threads"), variant, seed, split, None, state, out)


if __name__ == "__main__":
    run(main)

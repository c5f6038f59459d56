"""Train neural fields on the bank's images, without labels, and encode every image by each of them."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.fields.variants import FINETUNED, VARIANTS
from pipeline.run import Run, main


def train_field(run: Run) -> None:
    settings, split = run.params.train_field.model_dump(), Split.load(run.path("data/split"))
    fields, latents = run.path("models/field"), run.path("data/field_latents")
    if settings["size"] == "none" or not split.is_image:
        print(f"{run.label}: nothing to train, {'train_field.size is none' if split.is_image else 'no images'}")
        with atomic_folder(fields), atomic_folder(latents) as draft:
            write_json(draft / "latents.json", {"variants": []})
        return
    from attnknn.experiments.fields.latents import save_latents  # imports torch, which tables do not need
    from attnknn.experiments.fields.train import train_variant

    with atomic_folder(fields) as draft:
        for variant in VARIANTS:
            start = draft / "sparse" / "field" if variant in FINETUNED else None
            common = (run.seed, run.params.device, run.params.threads, run.checkpoint(variant))
            field, summary = train_variant(split, variant, settings, *common, start)
            field.save(draft / variant / "field")
            write_json(draft / variant / "trained.json", summary)
    with atomic_folder(latents) as draft:
        save_latents(split, fields, draft, run.seed, run.device)


if __name__ == "__main__":
    main(train_field)

"""Train neural fields on the bank's images, without labels: full and sparse contexts, with and without InfoNCE."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.fields.variants import VARIANTS
from pipeline.run import Run, main


def train_field(run: Run) -> None:
    settings, split = run.params.train_field.model_dump(), Split.load(run.path("data/split"))
    with atomic_folder(run.path("models/field")) as draft:
        if settings["size"] == "none" or not split.is_image:
            print(f"{run.label}: nothing to train, {'train_field.size is none' if split.is_image else 'no images'}")
            return
        from attnknn.experiments.fields.train import train_variant  # imports torch, which tables do not need

        for variant in VARIANTS:
            start = draft / "sparse" / "field" if variant == "sparse_nce" else None
            common = (run.seed, run.params.device, run.params.threads, run.checkpoint(variant))
            field, summary = train_variant(split, variant, settings, *common, start)
            field.save(draft / variant / "field")
            write_json(draft / variant / "trained.json", summary)
    for variant in VARIANTS:
        run.checkpoint(variant).unlink(missing_ok=True)


if __name__ == "__main__":
    main(train_field)

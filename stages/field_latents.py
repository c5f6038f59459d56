"""Latents of every image by every field, from the whole image and from a sparse context."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.fields.variants import trained_variants
from pipeline.run import Run, main


def field_latents(run: Run) -> None:
    fields = run.path("models/field")
    summaries = trained_variants(fields)
    with atomic_folder(run.path("data/field_latents")) as draft:
        common = {key: summary[key] for summary in summaries.values() for key in ("size", "share", "least")}
        write_json(draft / "latents.json", {"variants": list(summaries), **common})
        if not summaries:
            print(f"{run.label}: no fields")
            return
        from attnknn.experiments.fields.latents import latents_of_variants  # imports torch, which tables do not need

        split = Split.load(run.path("data/split"))
        for latents in latents_of_variants(split, fields, summaries, run.seed, run.device):
            latents.save(draft / latents.variant / latents.mode)


if __name__ == "__main__":
    main(field_latents)

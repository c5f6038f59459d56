"""Train encoders with other settings, each with a memory of its own; for encoder_ablation.seeds."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.train_ablation import train_variants
from pipeline.run import Run, main
from pipeline.search import search_settings
from pipeline.settings import merge


def train_ablation(run: Run) -> None:
    p = run.params
    whole = p.train_embedder.model_dump()
    settings = {
        name: merge(whole, change) for name, change in p.encoder_ablation.variants_for(p.train_embedder.encoder).items()
    }
    variants = {
        name: type(p.train_embedder).model_validate(changed) for name, changed in settings.items() if changed != whole
    }
    with atomic_folder(run.path("data/encoder_ablation")) as draft:
        write_json(draft / "variants.json", {"variants": list(variants)})
        train_variants(variants, Split.load(run.path("data/split")), search_settings(run), run.seed, run.label, draft)


if __name__ == "__main__":
    main(train_ablation)

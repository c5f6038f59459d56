"""Compare encoders trained with other settings, by the methods that read them."""

from attnknn.core.files import read_json
from attnknn.evaluation.paired_tests import BESIDE
from attnknn.experiments.encoder_ablation import compare_encoders
from pipeline.load import load_spaces
from pipeline.run import Run, main


def encoder_ablation(run: Run) -> None:
    p, folder, rows = run.params, run.path("data/encoder_ablation"), []
    names = read_json(folder / "variants.json")["variants"]
    if names:
        variants = {name: folder / str(place) for place, name in enumerate(names)}
        scoring, settings = p.evaluate.model_dump(), run.fit_settings(p.k_train)
        rows = compare_encoders(load_spaces(run)[0], variants, scoring, run.seed, **settings)
    run.write_tables({"encoder_ablation": BESIDE}, encoder_ablation=rows)


if __name__ == "__main__":
    main(encoder_ablation)

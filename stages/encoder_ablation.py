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
        settings = {"k": p.k_train, "fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump()}
        scoring = p.evaluate.model_dump()
        rows = compare_encoders(load_spaces(run)[0], variants, scoring, run.seed, **settings, device=run.device)
    run.write_tables({"encoder_ablation": BESIDE}, encoder_ablation=rows)


if __name__ == "__main__":
    main(encoder_ablation)

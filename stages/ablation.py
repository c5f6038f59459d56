"""Each part of the head off, added, and alone."""

from attnknn.experiments.ablation import ablate
from pipeline.load import load_spaces
from pipeline.run import Run, main


def ablation(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    k = min(p.ablation.k or p.k_train, *(space.neighbours.ids.shape[1] for space in spaces))
    scoring = p.evaluate.model_dump() | {"resamples": p.ablation.resamples}
    settings = {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "scoring": scoring}
    with run.progress("head") as bar:
        table = ablate(
            spaces,
            p.ablation.repeats,
            k,
            **settings,
            hard_weight=p.ablation.hard_weight,
            seed=run.seed,
            device=run.device,
            progress=lambda _: bar.update(),
            workers=run.workers,
        )
    run.write_tables(ablation=table)


if __name__ == "__main__":
    main(ablation)

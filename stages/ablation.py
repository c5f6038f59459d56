"""Each part of the head off, added, and alone."""

from attnknn.experiments.ablation import ablate
from pipeline.load import load_spaces
from pipeline.run import Run, main


def ablation(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    own, scoring = p.ablation, p.evaluate.model_dump() | {"resamples": p.ablation.resamples}
    k = min(own.k, *(space.neighbours.ids.shape[1] for space in spaces))
    settings = run.fit_settings(k) | {"progress": run.track("head"), "workers": run.workers}
    run.write_tables(ablation=ablate(spaces, own.repeats, own.hard_weight, scoring, run.seed, **settings))


if __name__ == "__main__":
    main(ablation)

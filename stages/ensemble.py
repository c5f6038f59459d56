"""Several k averaged, adaptive k and learned stopping, for every kNN method."""

from attnknn.experiments.ensemble import compare_variants
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main


def ensemble(run: Run) -> None:
    p, head = run.params, load_heads(run, "attention")["attention"]
    grids, scoring = p.tune.model_dump(), p.evaluate.model_dump()
    means, intervals, paired = compare_variants(
        load_spaces(run), head, p.ensemble.k or head.k, p.ensemble.ks, grids, scoring, run.seed, run.device
    )
    run.write_metrics(means)
    run.write_tables(ensemble=intervals, ensemble_paired=paired)


if __name__ == "__main__":
    main(ensemble)

"""Refit and compare all methods on a bank with wrong labels."""

from functools import partial

from attnknn.experiments.corruption import noise_conditions, with_noise
from attnknn.experiments.refit import refit_and_score
from pipeline.load import load_spaces
from pipeline.run import Run, main


def noise(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    k = p.noise.k or p.k_train
    conditions = {
        name: partial(with_noise, spaces, rate, kind=kind)
        for name, (kind, rate) in noise_conditions(p.noise.kinds, p.noise.rates).items()
    }
    settings = {"k": k, "fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "device": run.device}
    with run.progress("head", len(conditions) * p.noise.repeats) as bar:
        means, tables = refit_and_score(
            conditions,
            p.noise.repeats,
            p.evaluate.model_dump(),
            run.seed,
            lambda _: bar.update(),
            run.workers,
            **settings,
        )
    run.write_metrics(means)
    run.write_plots(noise=tables["intervals"], noise_paired=tables["paired"], noise_validation=tables["validation"])


if __name__ == "__main__":
    main(noise)

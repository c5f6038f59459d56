"""Refit and compare all methods on a bank with rare classes."""

from functools import partial

from attnknn.experiments.corruption import imbalance_conditions, with_imbalance
from attnknn.experiments.refit import refit_and_score
from pipeline.load import load_spaces
from pipeline.run import Run, main


def imbalance(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    k = p.imbalance.k or p.k_train
    conditions = {
        name: partial(with_imbalance, spaces, rate, kind=kind, device=run.device, most=k)
        for name, (kind, rate) in imbalance_conditions(p.imbalance.kinds, p.imbalance.ratios).items()
    }
    settings = {"k": k, "fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "device": run.device}
    with run.progress("head", len(conditions) * p.imbalance.repeats) as bar:
        means, tables = refit_and_score(
            conditions,
            p.imbalance.repeats,
            p.evaluate.model_dump(),
            run.seed,
            lambda _: bar.update(),
            run.workers,
            **settings,
        )
    run.write_metrics(means)
    run.write_plots(
        imbalance=tables["intervals"], imbalance_paired=tables["paired"], imbalance_validation=tables["validation"]
    )


if __name__ == "__main__":
    main(imbalance)

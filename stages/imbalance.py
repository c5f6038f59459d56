"""Refit and compare all methods on a bank with rare classes."""

from functools import partial

from attnknn.experiments.corruption import imbalance_conditions, with_imbalance
from pipeline.load import load_spaces
from pipeline.refit import refit_conditions
from pipeline.run import Run, main


def imbalance(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    k = p.imbalance.k or p.k_train
    # Held-out rows of folds are bank rows, and would hold the removed ones.
    make = partial(with_imbalance, spaces[:1], device=run.device, most=max(k, *p.tune.ks))
    kinds = imbalance_conditions(p.imbalance.kinds, p.imbalance.ratios, len(spaces[0].embeddings.classes))
    conditions = {name: partial(make, ratio, kind=kind) for name, (kind, ratio) in kinds.items()}
    refit_conditions(run, conditions, p.imbalance.repeats, k)


if __name__ == "__main__":
    main(imbalance)

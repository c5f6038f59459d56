"""Refit and compare all methods with wrong labels in the bank, or in all labels but those of test rows."""

from functools import partial

from attnknn.experiments.corruption import noise_conditions, with_noise
from pipeline.load import load_spaces
from pipeline.refit import refit_conditions
from pipeline.run import Run, main


def noise(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    named = noise_conditions(p.noise.kinds, p.noise.rates, p.noise.labels, len(spaces[0].embeddings.classes))
    conditions = {
        name: partial(with_noise, spaces, rate, kind=kind, parts=parts) for name, (kind, rate, parts) in named.items()
    }
    refit_conditions(run, conditions, p.noise.repeats, p.noise.k or p.k_train)


if __name__ == "__main__":
    main(noise)

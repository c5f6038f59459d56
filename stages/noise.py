"""Refit and compare all methods with wrong labels in the bank, or in all labels but those of test rows."""

from functools import partial

import numpy as np

from attnknn.core.artifacts import VAL
from attnknn.experiments.corruption import noise_conditions, with_noise
from pipeline.load import load_spaces
from pipeline.refit import refit_conditions
from pipeline.run import Run, main


def noise(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    named = noise_conditions(p.noise.kinds, p.noise.rates, p.noise.labels, len(spaces[0].embeddings.classes))
    # Held-out rows of folds are bank rows, whose labels stay clean: with wrong ones in the bank alone they would leak.
    conditions = {
        name: partial(with_noise, spaces if VAL in parts else spaces[:1], rate, kind=kind, parts=parts)
        for name, (kind, rate, parts) in named.items()
    }
    refit_conditions(run, conditions, p.noise.repeats, p.noise.k or p.k_train, np.asarray(spaces[0].embeddings.y))


if __name__ == "__main__":
    main(noise)

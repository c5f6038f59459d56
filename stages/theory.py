"""Check predictions of theory on stored neighbours and on the k sweep."""

import pandas as pd

from attnknn.core.artifacts import Predictions
from attnknn.experiments.theory import COLUMNS, FEWEST_KS, theory_tables
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main


def theory(run: Run) -> None:
    p, swept = run.params, pd.read_csv(run.path("plots/k_sweep"))
    scoring = p.evaluate.model_dump() | {"resamples": p.theory.resamples}
    head, by_k = load_heads(run, "attention")["attention"], Predictions.load(run.path("data/k_sweep"))
    means, tables = theory_tables(
        load_spaces(run)[0], head, by_k, swept, p.theory.k or head.k, scoring, run.seed, run.device
    )
    if not tables["theory_fit"]:
        print(f"{run.label}: no curve of the error; it takes {FEWEST_KS} values in k_sweep.ks")
    run.write_metrics(means)
    run.write_tables(COLUMNS, **tables)


if __name__ == "__main__":
    main(theory)

"""Follow images that change over time with late labels, beside classifiers that are fitted again."""

import numpy as np
import pandas as pd

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.drift import COLUMNS, best_others, drift_of_images
from pipeline.run import Run, main


def drift(run: Run) -> None:
    p, split, (encoder, _) = run.params, Split.load(run.path("data/split")), Encoder.load(run.path("models/encoder"))
    settings = p.drift.labels, p.drift.steps, p.drift.repeats
    table = drift_of_images(split, encoder, p.train_embedder.bf16, *settings, run.seed, run.device, run.track("change"))
    conditions = {}
    if table:
        best = best_others(pd.DataFrame(table)).astype(object).replace({np.nan: None}).set_index("condition")
        conditions = best.to_dict("index")
    run.write_metrics({"conditions": conditions})
    run.write_tables({"drift": COLUMNS}, drift=table)


if __name__ == "__main__":
    main(drift)

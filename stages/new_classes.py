"""Add rows of new classes to a memory, beside classifiers that are fitted again."""

import numpy as np
import pandas as pd

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.new_classes import COLUMNS, add_new_classes, best_others
from pipeline.run import Run, main


def new_classes(run: Run) -> None:
    p, split, (encoder, _) = run.params, Split.load(run.path("data/split")), Encoder.load(run.path("models/encoder"))
    settings = p.train_embedder, encoder, p.new_classes.rows, p.new_classes.repeats
    table = add_new_classes(split, *settings, run.seed, run.device, run.label)
    conditions = {}
    if table:
        best = best_others(pd.DataFrame(table)).astype(object).replace({np.nan: None}).set_index("condition")
        conditions = best.to_dict("index")
    run.write_metrics({"conditions": conditions})
    run.write_tables({"new_classes": COLUMNS}, new_classes=table)


if __name__ == "__main__":
    main(new_classes)

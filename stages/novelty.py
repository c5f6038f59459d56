"""Tell rows of unknown classes, and rows with mixed columns, from usual ones, beside other scores."""

import numpy as np
import pandas as pd

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder
from attnknn.experiments.novelty import best_others, detect_novelty
from pipeline.run import Run, main


def novelty(run: Run) -> None:
    split, (encoder, _) = Split.load(run.path("data/split")), Encoder.load(run.path("models/encoder"))
    settings = run.params.train_embedder, encoder, run.params.novelty.repeats
    table = detect_novelty(split, *settings, run.seed, run.device, run.label)
    best = best_others(pd.DataFrame(table)).astype(object).replace({np.nan: None}).set_index("condition")
    run.write_metrics({"conditions": best.to_dict("index")})
    run.write_tables(novelty=table)


if __name__ == "__main__":
    main(novelty)

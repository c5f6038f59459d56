"""Find labels that were made wrong, of rows that the encoder was not trained on: ours beside cleanlab."""

import numpy as np
import pandas as pd

from attnknn.core.artifacts import BANK, Embeddings, embedding_folders
from attnknn.experiments.audit import audit_conditions, best_others
from pipeline.run import Run, main


def audit(run: Run) -> None:
    p, e = run.params, Embeddings.load(embedding_folders(run.path("data/embeddings"))[0])
    unseen = np.flatnonzero(np.asarray(e.part) != BANK)
    if p.train_embedder.representation != "trained":
        unseen = np.arange(len(e.y))
    rows = np.random.default_rng(run.seed).permutation(unseen)[: p.audit.rows]
    z, y = np.asarray(e.z)[rows], np.asarray(e.y)[rows]
    _ = run.device  # sets the threads
    table = audit_conditions(z, y, p.audit.kinds, p.audit.rates, p.audit.repeats, run.workers, run.track("repeat"))
    best = best_others(pd.DataFrame(table)).astype(object).replace({np.nan: None}).set_index("condition")
    run.write_metrics({"rows": len(rows), "conditions": best.to_dict("index")})
    run.write_tables(audit=table)


if __name__ == "__main__":
    main(audit)

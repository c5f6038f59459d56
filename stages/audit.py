"""Find labels that were made wrong, beside cleanlab."""

import numpy as np
import pandas as pd

from attnknn.core.artifacts import BANK, TEST, Embeddings, embedding_folders
from attnknn.experiments.audit import COLUMNS, audit_conditions, best_others
from pipeline.run import Run, main


def audit(run: Run) -> None:
    p, e = run.params, Embeddings.load(embedding_folders(run.path("data/embeddings"))[0])
    part, test = np.asarray(e.part), np.empty(0, dtype=int)
    if p.train_embedder.representation == "trained":
        unseen = np.flatnonzero(part != BANK)
    else:
        unseen, test = np.flatnonzero(part != TEST), e.rows(TEST)
    rows = np.random.default_rng(run.seed).permutation(unseen)[: p.audit.rows]
    data = [(np.asarray(e.z)[chosen], np.asarray(e.y)[chosen]) for chosen in (rows, test)]
    _ = run.device  # sets the threads
    settings = p.audit.kinds, p.audit.rates, p.audit.repeats, run.workers
    table = audit_conditions(*data[0], data[1], *settings, run.track("repeat"))
    conditions = {}
    if table:
        best = best_others(pd.DataFrame(table)).astype(object).replace({np.nan: None}).set_index("condition")
        conditions = best.to_dict("index")
    run.write_metrics({"rows": len(rows), "conditions": conditions})
    run.write_tables({"audit": COLUMNS}, audit=table)


if __name__ == "__main__":
    main(audit)

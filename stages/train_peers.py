"""Fit other classifiers on embeddings, and on a table's own columns; tuned on val rows."""

import numpy as np

from attnknn.core.artifacts import FIT, TEST, VAL, Embeddings, Predictions, Split
from attnknn.core.files import atomic_folder
from attnknn.experiments.peers import embedding_peers, table_peers
from pipeline.run import Run, main

PARTS = {"fit": FIT, "val": VAL, "test": TEST}


def train_peers(run: Run) -> None:
    p, split = run.params, Split.load(run.path("data/split"))
    settings = {"tries": p.peers.tries, "seed": run.seed, "threads": p.threads}
    embeddings = Embeddings.load(run.path("data/embeddings") / "main")
    probs, selected = embedding_peers(embeddings, p.peers.embedding, **settings)
    if not split.is_image:
        on_columns = table_peers(split, p.peers.methods, **settings)
        probs, selected = {**probs, **on_columns[0]}, {**selected, **on_columns[1]}
    with atomic_folder(run.path("data/peers")) as draft:
        for i, (name, part) in enumerate(PARTS.items()):
            rows = split.rows(part)
            stacked = np.stack([by_part[i] for by_part in probs.values()])
            Predictions(rows.astype(np.int32), split.y[rows], stacked, tuple(probs), split.classes).save(draft / name)
    run.write_metrics(selected)


if __name__ == "__main__":
    main(train_peers)

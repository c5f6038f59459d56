"""Fit other classifiers on embeddings, and on a table's own columns; tuned on val rows."""

from attnknn.core.artifacts import Embeddings, PeerPredictions, Split, embedding_folders
from attnknn.experiments.peers import embedding_peers, table_peers
from pipeline.run import Run, main


def train_peers(run: Run) -> None:
    p, split = run.params, Split.load(run.path("data/split"))
    embeddings = [Embeddings.load(folder) for folder in embedding_folders(run.path("data/embeddings"))]
    settings = {"tries": p.peers.tries, "seed": run.seed, "threads": p.threads}
    probs, selected = embedding_peers(embeddings, p.peers.embedding, **settings)
    if not split.is_image:
        folds = [fold.part for fold in embeddings[1:]]
        on_columns = table_peers(split, p.peers.methods, folds, **settings)
        probs, selected = {**probs, **on_columns[0]}, {**selected, **on_columns[1]}
    PeerPredictions.from_probs(probs).save(run.path("data/peers"))
    run.write_metrics(selected)


if __name__ == "__main__":
    main(train_peers)

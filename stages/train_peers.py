"""Fit other classifiers on a table's own columns, tuned on val rows; none for images."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.peers import fit_and_predict
from pipeline.run import Run, main


def train_peers(run: Run) -> None:
    p, split, selected = run.params, Split.load(run.path("data/split")), {}
    names = [] if split.is_image else p.peers.methods
    with atomic_folder(run.path("data/peers")) as draft:
        write_json(draft / "peers.json", {"parts": ["test", "val"] if names else []})
        if names:
            test, val, selected = fit_and_predict(split, names, p.peers.tries, run.seed, p.threads)
            test.save(draft / "test")
            val.save(draft / "val")
    run.write_metrics(selected)


if __name__ == "__main__":
    main(train_peers)

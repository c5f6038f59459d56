"""Other classifiers on a table's own columns, tuned on val rows; nothing for images."""

from pathlib import Path

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.experiments.peers import fit_and_predict
from stages.params import read_params, run


def main(dataset: str, seed: int, split: Path, out: Path, metrics: Path) -> None:
    """Read SPLIT; write the peers' predictions of val and test rows to OUT, and their settings to METRICS."""
    p = read_params(dataset, "peers", "threads")
    data, selected = Split.load(split), {}
    names = [] if data.is_image else p.peers.methods
    with atomic_folder(out) as draft:
        write_json(draft / "peers.json", {"parts": ["test", "val"] if names else []})
        if names:
            test, val, selected = fit_and_predict(data, names, p.peers.tries, seed, p.threads)
            test.save(draft / "test")
            val.save(draft / "val")
    write_json(metrics, selected)


if __name__ == "__main__":
    run(main)

"""Hard queries: scores on them, and the effect of weighting them in the fit."""

from pathlib import Path

from tqdm import tqdm

from attnknn.core.artifacts import TEST
from attnknn.core.device import n_workers, use_device
from attnknn.core.files import write_csv, write_json
from attnknn.experiments.hard_queries import by_subset, compare_weighting, disagreement, shares
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, metrics: Path, plots: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE and FOLDS; write METRICS, and tables under PLOTS."""
    p = read_params(dataset, "hard", "train_attention", "tune", "evaluate", "k_train", "device", "threads")
    device, item = use_device(p.device, p.threads), f"{dataset}-{seed}.csv"
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    k = min(p.k_train, *(space.neighbours.ids.shape[1] for space in spaces))
    table = shares(spaces, k, p.hard.disagreement)
    settings = {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "seed": seed}
    settings |= {"device": device, "workers": n_workers(device, p.threads)}
    with tqdm(desc=f"hard {dataset}/{seed}", unit="head", delay=2, disable=None) as bar:
        predictions = compare_weighting(
            spaces, p.hard.weight, p.hard.repeats, p.k_train, progress=lambda _: bar.update(), **settings
        )
    hard = disagreement(spaces[:1], TEST, k) >= p.hard.disagreement
    if not hard.any():
        print(f"hard: {dataset}/{seed} has no test row with {p.hard.disagreement:g} of its neighbours of another class")
    means, intervals, paired = by_subset(predictions, hard, **p.evaluate.model_dump(), seed=seed)
    share = {}
    for part in dict.fromkeys(row["part"] for row in table):
        rows, n_hard = (sum(row[key] for row in table if row["part"] == part) for key in ("rows", "hard"))
        share[part] = n_hard / rows
    write_json(metrics, {"share": share, **means})
    for name, rows in (("hard", intervals), ("hard_paired", paired), ("hard_share", table)):
        write_csv(plots / name / item, rows)


if __name__ == "__main__":
    run(main)

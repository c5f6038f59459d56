"""Test-time augmentation of every method: the mean of its predictions over the first n views, for every n."""

from pathlib import Path

from attnknn.core.device import use_device
from attnknn.core.files import write_csv, write_json
from attnknn.evaluation.paired_tests import BASE
from attnknn.experiments.tta import COLUMNS, predict_views, score_views
from attnknn.heads.registry import load_head
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.neighbours.views import load_views
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    views: Path,
    heads: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, VIEWS and HEADS; write METRICS, and tables under PLOTS."""
    p = read_params(dataset, "tune", "evaluate", "k_eval", "device", "threads")
    device = use_device(p.device, p.threads)
    main, loaded = EmbeddingSpace.load(embeddings, neighbours, evidence), load_views(views)
    means, tables = {}, {name: [] for name in COLUMNS}
    if loaded:
        fitted = {name: load_head(heads / name).to(device) for name in ("attention", "prototypes")}
        t = p.tune
        probs = predict_views(main, loaded, fitted, p.k_eval, t.ks, t.temperatures, t.priors, device)
        means, tables = score_views(probs, main, t.ridges, **p.evaluate.model_dump(), seed=seed)
    else:
        print(f"tta {dataset}/{seed}: nothing to do, since there are no views")
    write_json(metrics, {n: {m: by_method[m] for m in by_method if m in BASE} for n, by_method in means.items()})
    for name, table in tables.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", table, COLUMNS[name])


if __name__ == "__main__":
    run(main)

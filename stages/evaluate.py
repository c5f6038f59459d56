"""Compare all methods on the test rows: scores, intervals, paired tests, reliability."""

from pathlib import Path

from attnknn.artifacts import Embeddings, Neighbours
from attnknn.comparison import compare
from attnknn.device import use_device
from attnknn.files import write_csv, write_json
from attnknn.heads import Attention
from attnknn.scorecard import intervals_and_tests, reliability, scores
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    attention: Path,
    out: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, ATTENTION; write predictions to OUT and small files under METRICS and PLOTS."""
    p = read_params(dataset, "evaluate", "tune", "k_eval", "device", "threads")
    e = p.evaluate
    predictions, tuned = compare(
        Embeddings.load(embeddings),
        Neighbours.load(neighbours),
        Attention.load(attention),
        k_eval=p.k_eval,
        ks=p.tune.k,
        temperatures=p.tune.temperature,
        priors=p.tune.prior,
        ridges=p.tune.ridge,
        device=use_device(p.device, p.threads),
    )
    predictions.save(out)
    write_json(metrics / "evaluate.json", scores(predictions, e.bins))
    write_json(metrics / "tuned.json", tuned)
    intervals, paired = intervals_and_tests(predictions, "attention", e.bins, e.resamples, e.confidence, seed)
    tables = {"intervals": intervals, "paired": paired, "reliability": reliability(predictions, e.bins)}
    for name, table in tables.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", table)


if __name__ == "__main__":
    run(main)

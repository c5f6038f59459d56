"""Claims of the theory of kNN attention, measured on the stored neighbours and predictions."""

from pathlib import Path

import pandas as pd

from attnknn.core.artifacts import BANK, TEST, Predictions
from attnknn.core.device import use_device
from attnknn.core.files import write_csv, write_json
from attnknn.experiments import theory
from attnknn.heads.registry import load_head
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    head: Path,
    swept: Path,
    predictions: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, HEAD, the table SWEPT, PREDICTIONS; write METRICS, and tables to PLOTS."""
    p = read_params(dataset, "theory", "evaluate", "k_eval", "device", "threads")
    device = use_device(p.device, p.threads)
    space, by_k = EmbeddingSpace.load(embeddings, neighbours, evidence), Predictions.load(predictions)
    attention, rows = load_head(head).to(device), space.embeddings.rows(TEST)
    scoring = p.evaluate.model_dump() | p.theory.model_dump()
    fits, points = theory.error_curves(by_k, **scoring, seed=seed)
    if not points:
        print(f"theory {dataset}/{seed}: no curve of the error; it takes {theory.FEWEST_KS} values in k_sweep.ks")
    statistics = theory.weight_statistics(attention, space, TEST, p.k_eval, device)
    about_entropy, deciles = theory.entropies(*statistics, p.evaluate.confidence)
    table = [
        *theory.norms(space.embeddings.z),
        *theory.against_root(pd.read_csv(swept), by_k, len(space.embeddings.rows(BANK)), **scoring, seed=seed),
        *fits,
        *theory.equivalence(space, rows, p.k_eval),
        *theory.temperatures(attention),
        *about_entropy,
    ]
    by_quantity: dict[str, dict[str, float]] = {}
    for row in table:
        if row["value"] == row["value"]:  # the AUC without an error is NaN
            by_quantity.setdefault(row["quantity"], {})[row["item"].replace(" ", "_")] = row["value"]
    write_json(metrics, by_quantity)
    item = f"{dataset}-{seed}.csv"
    write_csv(plots / "theory" / item, table, theory.COLUMNS)
    write_csv(plots / "theory_fit" / item, points, theory.FIT_COLUMNS)
    write_csv(plots / "theory_entropy" / item, deciles, theory.ENTROPY_COLUMNS)


if __name__ == "__main__":
    run(main)

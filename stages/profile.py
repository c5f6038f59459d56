"""Time and recall of each index on the dataset's embeddings, and the time of each head."""

from pathlib import Path

from attnknn.core.artifacts import BANK, TEST
from attnknn.core.device import use_device
from attnknn.core.files import write_csv
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.experiments.profile import accuracy_lost, machine, profile_heads, profile_indexes
from attnknn.heads.baselines import choices_of_k
from attnknn.heads.registry import load_head
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str, seed: int, embeddings: Path, neighbours: Path, evidence: Path, folds: Path, heads: Path, plots: Path
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, FOLDS and HEADS; write tables under PLOTS."""
    p = read_params(dataset, "profile", "tune", "evaluate.bins", "evaluate.confidence", "k_eval", "device", "threads")
    about = machine()  # first, with the load before our own
    device, settings, t = use_device(p.device, p.threads), p.profile, p.tune
    set_threads(p.threads)
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    space, metric = spaces[0], spaces[0].neighbours.metric
    fitted = tuned_baselines(spaces, choices_of_k(t.ks, p.k_eval), t.temperatures, t.priors)[0]
    fitted["attention"] = load_head(heads / "attention").to(device)
    timing = {"repeats": settings.repeats, "singles": settings.singles, "seed": seed}
    indexes = {"hnsw": settings.hnsw.model_dump(), "ivf": settings.ivf.model_dump()}
    table, by_index = profile_indexes(space.embeddings, p.k_eval, metric, **indexes, **timing)
    scoring = {
        "bins": p.evaluate.bins,
        "resamples": settings.resamples,
        "confidence": p.evaluate.confidence,
        "seed": seed,
    }
    e = space.embeddings
    sizes = {"bank_rows": len(e.rows(BANK)), "test_rows": len(e.rows(TEST)), "dimensions": e.z.shape[1]}
    rounds = {"repeats": settings.repeats, "warm_up_rounds": 1, "singles": settings.singles}
    about = {**sizes, "k": p.k_eval, **rounds, "threads": p.threads, "device": device, **about}
    tables = {
        "profile": table,
        "profile_heads": profile_heads(space, fitted, p.k_eval, **timing, device=device),
        "profile_paired": accuracy_lost(space, by_index, fitted, p.k_eval, **scoring, device=device),
        "profile_about": [{"quantity": name, "value": value} for name, value in about.items()],
    }
    for name, table in tables.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", table)


if __name__ == "__main__":
    run(main)

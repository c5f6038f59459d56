"""Compare pixels, latents of fields and embeddings by kNN, a linear probe and a transformer probe."""

from pathlib import Path

from attnknn.core.artifacts import Split
from attnknn.core.files import read_json, write_csv, write_json
from attnknn.experiments.fields.variants import PROBE_TABLES
from stages.params import read_params, run


def main(dataset: str, seed: int, split: Path, latents: Path, encoder: Path, metrics: Path, plots: Path) -> None:
    """Read SPLIT, LATENTS and ENCODER; write METRICS, and tables under PLOTS, empty if there are no latents."""
    # fmt: off
    p = read_params(
        dataset, "probe", "train_attention", "tune", "build_index", "evidence", "evaluate.bins",
        "evaluate.confidence", "k_train", "k_max", "device", "threads")
    # fmt: on
    means, rows = {}, {}
    summary = read_json(latents / "latents.json")
    if variants := summary["variants"]:
        # These import torch, which tables do not need.
        from attnknn.core.device import n_workers, use_device
        from attnknn.encoder.encoder import Encoder
        from attnknn.experiments.fields.readouts import read_out_all
        from attnknn.experiments.fields.representations import Representations
        from attnknn.experiments.fields.tables import tables
        from attnknn.index.faiss_index import set_threads

        set_threads(p.threads)
        device, net = use_device(p.device, p.threads), p.probe.transformers[summary["size"]].model_dump()
        context = summary["share"], summary["least"], net.pop("patch"), seed
        representations = Representations(Split.load(split), latents, Encoder.load(encoder)[0], *context)
        knn = {"k": p.k_train, "k_max": p.k_max, "sizes": p.evidence.sizes, "metric": p.build_index.metric}
        knn |= {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump()}
        readouts = {"knn": knn, "strengths": p.probe.strengths, "transformer": net, "device": device}
        predictions = read_out_all(representations, variants, n_workers(device, p.threads), **readouts)
        scoring = {"bins": p.evaluate.bins, "resamples": p.probe.resamples, "confidence": p.evaluate.confidence}
        means, rows = tables(predictions, scoring, seed)
    else:
        print(f"probe {dataset}/{seed}: no latents")
    write_json(metrics, means)
    for name, columns in PROBE_TABLES.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", rows.get(name, []), columns)


if __name__ == "__main__":
    run(main)

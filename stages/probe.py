"""What kNN, a linear layer and a small transformer read off the images, the latents of fields, and the embeddings."""

from pathlib import Path

from attnknn.core.files import read_json, write_csv, write_json
from stages.params import read_params, run

SCORES = ("mode", "representation", "readout", "metric", "value", "low", "high")
PAIRED = ("mode", "representation", "readout", "baseline", "baseline_readout", "metric")
PAIRED += ("difference", "low", "high", "errors", "p", "test")
AGREEMENT = ("mode", "readout", "against", "representations", "rho", "low", "high", "p")


def main(dataset: str, seed: int, split: Path, latents: Path, encoder: Path, metrics: Path, plots: Path) -> None:
    """Read SPLIT, LATENTS and ENCODER; write METRICS, and tables under PLOTS, empty where there are no latents."""
    # fmt: off
    p = read_params(
        dataset, "probe", "train_attention", "tune", "build_index", "evidence", "evaluate.bins",
        "evaluate.confidence", "k_train", "k_eval", "k_max", "device", "threads")
    # fmt: on
    means, scored, paired, agreed = {}, [], [], []
    if variants := (about := read_json(latents / "latents.json"))["variants"]:
        # What needs torch is imported here: with no field, as for tables, the stage takes no time.
        from attnknn.core.artifacts import Split
        from attnknn.core.device import n_workers, use_device
        from attnknn.encoder.encoder import Encoder
        from attnknn.experiments.fields.comparison import compare, tables
        from attnknn.index.faiss_index import set_threads

        set_threads(p.threads)
        device, net = use_device(p.device, p.threads), p.probe.transformers[about["size"]]
        fitting = {"k_train": p.k_train, "k_eval": p.k_eval, "fitting": p.train_attention.model_dump()}
        reading = {
            "searching": {"k_max": p.k_max, "sizes": p.evidence.sizes, "metric": p.build_index.metric},
            "settings": fitting | {"grids": p.tune.model_dump()},
            "strengths": p.probe.strengths,
            "transformer": net.model_dump(exclude={"patch"}),
            "device": device,
        }
        places = {"share": about["share"], "least": about["least"], "patch": net.patch}
        embed = Encoder.load(encoder)[0]
        found = compare(
            Split.load(split), latents, variants, embed, places, seed, n_workers(device, p.threads), **reading
        )
        scoring = {"bins": p.evaluate.bins, "resamples": p.probe.resamples, "confidence": p.evaluate.confidence}
        means, scored, paired, agreed = tables(found, scoring, seed)
    else:
        print(f"probe {dataset}/{seed}: there are no latents of fields")
    write_json(metrics, means)
    tables_of = {"probe": (scored, SCORES), "probe_paired": (paired, PAIRED), "probe_agreement": (agreed, AGREEMENT)}
    for name, (rows, columns) in tables_of.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", rows, columns)


if __name__ == "__main__":
    run(main)

"""kNN, linear and transformer probes on pixels, latents of fields and embeddings."""

from attnknn.core.artifacts import Split
from attnknn.core.files import read_json
from attnknn.experiments.fields.variants import PROBE_TABLES
from pipeline.run import Run, main
from pipeline.search import search_settings


def probe(run: Run) -> None:
    p, folder = run.params, run.path("data/field_latents")
    summary, means, rows = read_json(folder / "latents.json"), {}, {name: [] for name in PROBE_TABLES}
    if variants := summary["variants"]:
        # These import torch, which tables do not need.
        from attnknn.encoder.encoder import Encoder
        from attnknn.experiments.fields.readouts import read_out_all
        from attnknn.experiments.fields.representations import Representations
        from attnknn.experiments.fields.tables import tables

        net = p.probe.transformers[summary["size"]].model_dump()
        context = summary["share"], summary["least"], net.pop("patch"), run.seed
        split, encoder = Split.load(run.path("data/split")), Encoder.load(run.path("models/encoder"))[0]
        knn = search_settings(run) | {"k": p.probe.k or p.k_train}
        knn |= {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump()}
        readouts = {"strengths": p.probe.strengths, "transformer": net, "device": knn.pop("device"), "knn": knn}
        representations = Representations(split, folder, encoder, *context)
        predictions = read_out_all(representations, variants, run.workers, **readouts)
        means, rows = tables(predictions, p.evaluate.model_dump() | {"resamples": p.probe.resamples}, run.seed)
    else:
        print(f"{run.label}: no latents")
    run.write_metrics(means)
    run.write_plots(PROBE_TABLES, **rows)


if __name__ == "__main__":
    main(probe)

"""kNN, linear and transformer probes on pixels, latents of fields and embeddings."""

from attnknn.core.files import read_json
from attnknn.experiments.fields.variants import PROBE_TABLES
from pipeline.run import Run, main
from pipeline.search import search_settings


def probe(run: Run) -> None:
    p, folders = run.params, (run.path("data/split"), run.path("data/field_latents"), run.path("models/encoder"))
    fields, means, rows = read_json(folders[1] / "latents.json"), {}, {name: [] for name in PROBE_TABLES}
    if fields["variants"]:
        # These import torch, which tables do not need.
        from attnknn.experiments.fields.readouts import read_out_all
        from attnknn.experiments.fields.representations import Representations
        from attnknn.experiments.fields.tables import tables

        net = p.probe.transformers[fields["size"]].model_dump()
        knn = search_settings(run) | {"k": p.probe.k or p.k_train}
        knn |= {"fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump()}
        representations = Representations.open(*folders, patch=net.pop("patch"), seed=run.seed)
        readouts = {"strengths": p.probe.strengths, "transformer": net, "device": knn.pop("device"), "knn": knn}
        predictions = read_out_all(representations, fields["variants"], run.workers, **readouts)
        means, rows = tables(predictions, p.evaluate.model_dump() | {"resamples": p.probe.resamples}, run.seed)
    run.write_metrics(means)
    run.write_tables(PROBE_TABLES, **rows)


if __name__ == "__main__":
    main(probe)

"""Reconstructions by fields (PSNR, pictures), training curves, and t-SNE of the representations."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, read_json, write_json
from attnknn.experiments.fields.variants import REPORT_TABLES, trained_variants, training_table
from pipeline.run import Run, main


def field_report(run: Run) -> None:
    p, latents, fields = run.params, run.path("data/field_latents"), run.path("models/field")
    summary, rows, columns = read_json(latents / "latents.json"), {name: [] for name in REPORT_TABLES}, []
    with atomic_folder(run.path("data/pictures/field_pictures")) as draft:
        if variants := summary["variants"]:
            # These import torch, which tables do not need.
            from attnknn.encoder.encoder import Encoder
            from attnknn.experiments.fields.fidelity import image_grid, psnr_table, reconstructions
            from attnknn.experiments.fields.maps import maps
            from attnknn.experiments.fields.representations import Representations

            split, encoder = Split.load(run.path("data/split")), Encoder.load(run.path("models/encoder"))[0]
            context = summary["share"], summary["least"]
            representations = Representations(split, latents, encoder, *context, patch=1, seed=run.seed)
            errors, pictures = reconstructions(representations, fields, variants, p.probe.pictures, run.device)
            columns, grid = image_grid(pictures)
            grid.save(draft / "reconstructions.png", optimize=True)
            rows = {
                "field_psnr": psnr_table(errors, p.probe.resamples, p.evaluate.confidence, run.seed),
                "field_training": training_table(trained_variants(fields)),
                "field_tsne": maps(representations, variants, p.probe.tsne_rows, p.explain.perplexity, run.workers),
            }
        write_json(draft / "pictures.json", {"columns": columns})
    run.write_plots(REPORT_TABLES, **rows)


if __name__ == "__main__":
    main(field_report)

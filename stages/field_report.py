"""Reconstructions by fields (PSNR, pictures), training curves, and t-SNE of the representations."""

from attnknn.core.files import atomic_folder, write_csv, write_json
from attnknn.experiments.fields.variants import REPORT_TABLES, trained_variants
from pipeline.run import Run, main


def field_report(run: Run) -> None:
    p, fields, columns = run.params, run.path("models/field"), []
    folders = run.path("data/split"), run.path("data/field_latents"), run.path("models/encoder")
    summaries, rows = trained_variants(fields), {name: [] for name in REPORT_TABLES}
    with atomic_folder(run.path("data/pictures/field_pictures")) as draft:
        if summaries:
            # These import torch, which tables do not need.
            from attnknn.experiments.fields.fidelity import image_grid, psnr_table, reconstructions
            from attnknn.experiments.fields.maps import maps
            from attnknn.experiments.fields.representations import Representations

            data, variants = Representations.open(*folders, patch=1, seed=run.seed), list(summaries)
            errors, pictures = reconstructions(data, fields, variants, p.probe.pictures, run.device)
            columns, grid = image_grid(pictures)
            grid.save(draft / "reconstructions.png", optimize=True)
            rows["field_psnr"] = psnr_table(errors, p.probe.resamples, p.evaluate.confidence, run.seed)
            rows["field_training"] = [
                dict.fromkeys(REPORT_TABLES["field_training"]) | {"variant": variant, **row}
                for variant, summary in summaries.items()
                for row in summary["history"]
            ]
            write_csv(draft / "tsne.csv", maps(data, variants, p.probe.tsne_rows, p.probe.perplexity, run.workers))
        write_json(draft / "pictures.json", {"columns": columns})
    run.write_tables(REPORT_TABLES, **rows)


if __name__ == "__main__":
    main(field_report)

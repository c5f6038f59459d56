"""Embed views of the held-out images (mirrored, shifted) and find their neighbours; tables have none."""

from attnknn.core.artifacts import Split
from attnknn.neighbours.views import save_views
from pipeline.run import Run, main


def views(run: Run) -> None:
    p, split, views = run.params, Split.load(run.path("data/split")), iter(())
    if split.is_image:
        # These import torch, which tables do not need.
        from attnknn.experiments.image_views import embedded_views
        from attnknn.index.faiss_index import set_threads

        set_threads(p.threads)
        encoder, bank = run.path("models/encoder"), run.path("models/bank")
        views = embedded_views(split, encoder, bank, p.tta.model_dump(), p.k_max, run.seed, run.device)
        views = iter(run.track("view")(views))
    if not save_views(views, run.path("data/views")):
        print(f"{run.label}: no views, {'tta.flip and tta.crops are off' if split.is_image else 'a table has none'}")


if __name__ == "__main__":
    main(views)

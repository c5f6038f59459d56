"""Train the encoder on bank rows and embed every row; for cross-fitting, an encoder per fold too."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder
from attnknn.encoder.crossfit import fold_embeddings
from attnknn.encoder.encoder import embed_split
from attnknn.encoder.fit import fit_encoder
from attnknn.encoder.train import best_epoch, summary
from attnknn.index.faiss_index import set_threads
from pipeline.run import Run, main


def train_embedder(run: Run) -> None:
    set_threads(run.params.threads)
    split, settings, device = Split.load(run.path("data/split")), run.params.train_embedder, run.device
    encoder, history = fit_encoder(split, settings, run.seed, device, run.label, run.checkpoint())
    with atomic_folder(run.path("data/embeddings")) as draft:
        embed_split(encoder, split, device, settings.bf16).save(draft / "main")
        for fold, embeddings in enumerate(fold_embeddings(split, settings, run.seed, device, f"{run.label}, fold")):
            embeddings.save(draft / f"fold_{fold}")
    about = {"classes": list(split.classes), "schema": split.schema, "bf16": settings.bf16}
    encoder.save(run.path("models/encoder"), **about, kept=best_epoch(history))
    best, rows = summary(history)
    run.write_metrics(best)
    run.write_plots(training=rows)
    run.checkpoint().unlink(missing_ok=True)


if __name__ == "__main__":
    main(train_embedder)

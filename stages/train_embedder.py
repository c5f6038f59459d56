"""Train the encoder and the same network as a plain classifier on bank rows; embed every row."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder
from attnknn.encoder.crossfit import fold_embeddings
from attnknn.encoder.encoder import embed_split
from attnknn.encoder.fit import fit_encoder, fit_plain_classifier
from attnknn.encoder.train import best_epoch, summary
from attnknn.index.faiss_index import set_threads
from pipeline.run import Run, main


def train_embedder(run: Run) -> None:
    set_threads(run.params.threads)
    split, settings, device = Split.load(run.path("data/split")), run.params.train_embedder, run.device
    common = split, settings, run.seed, device, run.label
    encoder, history = fit_encoder(*common, run.checkpoint())
    embeddings = embed_split(encoder, split, device, settings.bf16, run.cluster)
    with atomic_folder(run.path("data/embeddings")) as draft:
        embeddings.save(draft / "main")
        for fold, fold_rows in enumerate(fold_embeddings(*common)):
            fold_rows.save(draft / f"fold_{fold}")
    about = {"classes": list(split.classes), "schema": split.schema, "bf16": settings.bf16}
    encoder.save(run.path("models/encoder"), **about, kept=best_epoch(history))
    cnn, cnn_history = fit_plain_classifier(*common, run.checkpoint("cnn"), embeddings, best_epoch(history))
    cnn.save(run.path("data/cnn"))
    (best, curve), (cnn_best, cnn_curve) = summary(history), summary(cnn_history)
    run.write_metrics(best)
    run.write_metrics(cnn_best, "train_cnn")
    run.write_tables(training=curve, cnn_training=cnn_curve)


if __name__ == "__main__":
    main(train_embedder)

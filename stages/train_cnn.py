"""Train the backbone as a plain classifier; an encoder trained as one is that network."""

from attnknn.core.artifacts import Split
from attnknn.encoder.encoder import Encoder, embed_split
from attnknn.encoder.fit import classifier_settings, fit_and_embed
from attnknn.encoder.train import judged_by_logits, summary
from attnknn.index.faiss_index import set_threads
from pipeline.run import Run, main


def train_cnn(run: Run) -> None:
    set_threads(run.params.threads)
    split, settings, device = Split.load(run.path("data/split")), run.params.train_embedder, run.device
    if settings.model_copy(update={"folds": 0}) == classifier_settings(settings):
        encoder, about = Encoder.load(run.path("models/encoder"))
        embeddings = embed_split(encoder, split, device, settings.bf16)
        history = [about["kept"] | judged_by_logits(embeddings)]
    else:
        options = {"classifier": True, "checkpoint": run.checkpoint()}
        embeddings, history = fit_and_embed(split, settings, run.seed, device, run.label, **options)
    embeddings.save(run.path("data/cnn"))
    best, rows = summary(history)
    run.write_metrics(best)
    run.write_plots(cnn_training=rows)
    run.checkpoint().unlink(missing_ok=True)


if __name__ == "__main__":
    main(train_cnn)

"""Galleries of neighbours that decided, confusion of classes, and t-SNE of the embeddings."""

from attnknn.core.artifacts import Predictions, Split
from attnknn.evaluation.confusion import PAIRED_COLUMNS, confusion, confusion_tests, shared_errors
from attnknn.experiments.gallery import gallery, save_gallery
from attnknn.experiments.tsne import TSNE_COLUMNS, tsne_table
from attnknn.heads.baselines import Distance
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main

COMPARED = ("attention", "distance_vector", "linear_temperature")
COLUMNS = {"confusion_paired": PAIRED_COLUMNS, "tsne": TSNE_COLUMNS}


def explain(run: Run) -> None:
    p, e, split, space = run.params, run.params.explain, Split.load(run.path("data/split")), load_spaces(run)[0]
    test = Predictions.load(run.path("data/predictions") / "test")
    heads = load_heads(run, "attention")["attention"], Distance(**run.read_metrics("tuned")["distance"])
    shown = {"k": p.k_eval, "count": e.cases, "neighbours": e.neighbours, "device": run.device}
    save_gallery(*gallery(split, space, *heads, test, **shown), run.path("data/pictures/gallery"))
    methods = [name for name in COMPARED if name in test.methods]
    run.write_metrics(shared_errors(test, methods))
    places = tsne_table(space, test, e.tsne_rows, e.perplexity, run.seed)
    tests = confusion_tests(test, "attention", "distance_vector")
    run.write_plots(COLUMNS, confusion=confusion(test, methods), confusion_paired=tests, tsne=places)


if __name__ == "__main__":
    main(explain)

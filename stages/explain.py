"""Galleries of neighbours that decided, confusion of classes, and t-SNE of the embeddings."""

from PIL import Image

from attnknn.core.artifacts import Predictions, Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.evaluation.confusion import confusion, confusion_tests, shared_errors
from attnknn.experiments.gallery import gallery
from attnknn.experiments.tsne import tsne_table
from attnknn.heads.baselines import Distance
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main

COMPARED = ("attention", "distance_vector", "linear_temperature")
COLUMNS = {
    "confusion_paired": ("actual", "predicted", "rows", "method", "count", "baseline", "baseline_count", "both", "p"),
    "tsne": ("x", "y", "actual", "predicted", "wrong"),
}


def explain(run: Run) -> None:
    p, e, split, space = run.params, run.params.explain, Split.load(run.path("data/split")), load_spaces(run)[0]
    test = Predictions.load(run.path("data/predictions") / "test")
    attention, distance = load_heads(run, "attention")["attention"], Distance(**run.read_metrics("tuned")["distance"])
    cases, strips = gallery(split, space, attention, distance, test, p.k_eval, e.cases, e.neighbours, device=run.device)
    with atomic_folder(run.path("data/pictures/gallery")) as draft:
        write_json(draft / "gallery.json", cases)
        for name, strip in strips.items():
            Image.fromarray(strip).save(draft / name, optimize=True)
    methods = [name for name in COMPARED if name in test.methods]
    run.write_metrics(shared_errors(test, methods))
    places = tsne_table(space, test, e.tsne_rows, e.perplexity, run.seed)
    if not places:
        print(f"{run.label}: {len(test.rows)} test rows are too few for a t-SNE")
    tests = confusion_tests(test, "attention", "distance_vector")
    run.write_plots(COLUMNS, confusion=confusion(test, methods), confusion_paired=tests, tsne=places)


if __name__ == "__main__":
    main(explain)

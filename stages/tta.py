"""Test-time augmentation of every method: the mean of its predictions over the first n views, for every n."""

from attnknn.evaluation.paired_tests import BASE
from attnknn.experiments.tta import COLUMNS, predict_views, score_views
from attnknn.neighbours.views import load_views
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main


def tta(run: Run) -> None:
    p, views = run.params, load_views(run.path("data/views"))
    means, tables = {}, {name: [] for name in COLUMNS}
    if views:
        main, heads = load_spaces(run)[0], load_heads(run, "attention", "prototypes")
        k = min(max(p.tune.ks), main.neighbours.ids.shape[1])
        probs = predict_views(main, views, heads, k, p.tune.model_dump(), run.device)
        means, tables = score_views(probs, main, p.tune.ridges, p.evaluate.model_dump(), run.seed)
    else:
        print(f"{run.label}: no views")
    run.write_metrics({n: {name: scores[name] for name in scores if name in BASE} for n, scores in means.items()})
    run.write_tables(COLUMNS, **tables)


if __name__ == "__main__":
    main(tta)

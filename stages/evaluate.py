"""Compare all methods on the test rows: scores, tests, abstention, conformal sets, examples, confusions and t-SNE."""

from attnknn.core.artifacts import Embeddings, Split
from attnknn.core.files import atomic_folder
from attnknn.evaluation.conformal import selective_tables
from attnknn.evaluation.evaluate import compare_all, headroom
from attnknn.evaluation.opponents import score_tables
from attnknn.experiments.explain import explain
from attnknn.heads.baselines import Distance
from pipeline.load import load_heads, load_peers, load_spaces
from pipeline.run import Run, main


def evaluate(run: Run) -> None:
    p, spaces, heads = run.params, load_spaces(run), load_heads(run, "attention", "prototypes")
    k, device, peers = p.k_eval, run.device, load_peers(run)
    network = Embeddings.load(run.path("data/cnn"))
    result, val = compare_all(spaces, heads, network, peers, k, device=device, **p.tune.model_dump())
    with atomic_folder(run.path("data/predictions")) as draft:
        result.test.save(draft / "test")
        result.val.save(draft / "val")
    scoring = {"resamples": p.evaluate.resamples, "confidence": p.evaluate.confidence, "seed": run.seed}
    metrics, tables = score_tables(result.test, val, p.evaluate.bins, **scoring)
    abstention, selective = selective_tables(result.test, result.val, **p.selective.model_dump(), **scoring)
    distance = Distance(**result.tuned["distance"])  # type: ignore[arg-type]
    shown, folder = (heads["attention"], distance), run.path("data/pictures/gallery")
    split = Split.load(run.path("data/split"))
    errors, explained = explain(split, spaces[0], shown, result.test, k, p.explain, folder, run.seed, device)
    metrics |= {"selective": abstention, "explain": errors, "tuned": result.tuned, "headroom": headroom(spaces[0], k)}
    for name, values in metrics.items():
        run.write_metrics(values, name)
    run.write_plots(None, **tables, **selective, **explained)
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    for name in [name for name, settings in result.tuned.items() if settings.get("k") == k < stored]:
        print(f"{name}: best k on val is {k}, the largest that k_eval allows; raise k_eval (stored: {stored})")


if __name__ == "__main__":
    main(evaluate)

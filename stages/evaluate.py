"""Compare all methods on the test rows: scores, tests, abstention, conformal sets, examples and confusions."""

from attnknn.core.artifacts import Embeddings, Split
from attnknn.core.files import atomic_folder
from attnknn.evaluation.conformal import selective_tables
from attnknn.evaluation.confusion import confusion
from attnknn.evaluation.evaluate import compare_all, headroom
from attnknn.evaluation.opponents import OURS, score_tables
from attnknn.experiments.gallery import gallery, save_gallery
from attnknn.heads.baselines import Distance
from pipeline.load import load_heads, load_peers, load_spaces
from pipeline.run import Run, main


def evaluate(run: Run) -> None:
    p, spaces, heads = run.params, load_spaces(run), load_heads(run)
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    k, device, space = min(p.k_eval, stored), run.device, spaces[0]
    network, split = Embeddings.load(run.path("data/cnn")), Split.load(run.path("data/split"))
    result = compare_all(spaces, heads, network, load_peers(run), k, device=device, **p.tune.model_dump())
    with atomic_folder(run.path("data/predictions")) as draft:
        result.test.save(draft / "test")
        result.val.save(draft / "val")
    scoring = {"resamples": p.evaluate.resamples, "confidence": p.evaluate.confidence, "seed": run.seed}
    scores, tables = score_tables(result.test, result.val, p.evaluate.bins, **scoring)
    abstention, selective = selective_tables(result.test, result.val, **p.selective.model_dump(), **scoring)
    distance = Distance(**result.tuned["distance"])  # type: ignore[arg-type]
    examples = gallery(split, space, heads["attention"], distance, result.test, k, p.explain.neighbours, device)
    save_gallery(*examples, run.path("data/pictures/gallery"))
    metrics = {"evaluate": scores, "selective": abstention, "tuned": result.tuned, "headroom": headroom(space, k)}
    for name, values in metrics.items():
        run.write_metrics(values, name)
    run.write_tables(**tables, **selective, confusion=confusion(result.test, [OURS]))
    for name in [name for name, settings in result.tuned.items() if settings.get("k") == k < stored]:
        print(f"{name}: best k on val is {k}, the largest that k_eval allows; raise k_eval (stored: {stored})")


if __name__ == "__main__":
    main(evaluate)

"""Compare all methods on the test rows: scores, intervals, paired tests, reliability, abstention, conformal sets."""

from attnknn.core.artifacts import Embeddings
from attnknn.core.files import atomic_folder
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.conformal import selective_tables
from attnknn.evaluation.evaluate import classifier, compare, headroom, stack_methods
from attnknn.evaluation.paired_tests import score_tables
from pipeline.load import load_heads, load_peers, load_spaces
from pipeline.run import Run, main


def evaluate(run: Run) -> None:
    p, spaces, heads = run.params, load_spaces(run), load_heads(run, "attention", "prototypes")
    ours = compare(spaces, heads, p.k_eval, **p.tune.model_dump(), calibrations=KINDS, device=run.device)
    others = classifier(Embeddings.load(run.path("data/cnn")), spaces[0], p.tune.ridges, KINDS, load_peers(run))
    test = stack_methods(ours.test, others.test)
    val = ours.val if spaces[1:] else stack_methods(ours.val, others.val)  # `others` lack the val rows of folds
    with atomic_folder(run.path("data/predictions")) as draft:
        test.save(draft / "test")
        val.save(draft / "val")
    scoring = p.evaluate.model_dump() | {"seed": run.seed}
    metrics, tables = score_tables(test, (ours.val, others.val), **scoring)
    scoring.pop("bins")
    abstention, selective = selective_tables(test, val, **p.selective.model_dump(), **scoring)
    metrics |= {"selective": abstention, "tuned": ours.tuned | others.tuned, "headroom": headroom(spaces[0], p.k_eval)}
    for name, values in metrics.items():
        run.write_metrics(values, name)
    run.write_plots(None, **tables, **selective)
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    for name in [name for name, settings in ours.tuned.items() if settings.get("k") == p.k_eval < stored]:
        print(f"{name}: best k on val is {p.k_eval}, the largest that k_eval allows; raise k_eval (stored: {stored})")


if __name__ == "__main__":
    main(evaluate)

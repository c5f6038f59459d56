"""Compare all methods on the test rows: scores, intervals, paired tests, reliability, abstention, conformal sets."""

from attnknn.core.artifacts import Embeddings, Predictions
from attnknn.core.files import atomic_folder, read_json
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.conformal import selective_tables
from attnknn.evaluation.evaluate import classifier, compare, headroom, stack_methods
from attnknn.evaluation.paired_tests import BASE, intervals_and_tests, pairs, reliability, scores, values
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main


def evaluate(run: Run) -> None:
    p, spaces, peers, device = run.params, load_spaces(run), run.path("data/peers"), run.device
    heads, grids = load_heads(run, "attention", "prototypes"), p.tune.model_dump()
    ours = compare(spaces, heads, p.k_eval, **grids, calibrations=KINDS, device=device)
    cnn = classifier(Embeddings.load(run.path("data/cnn")), spaces[0], p.tune.ridges, KINDS)
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    for name in [name for name, settings in ours.tuned.items() if settings.get("k") == p.k_eval < stored]:
        print(f"{name}: best k on val is {p.k_eval}, the largest that k_eval allows; raise k_eval (stored: {stored})")
    others = [Predictions.load(peers / part) for part in read_json(peers / "peers.json")["parts"]]
    test, other_val = stack_methods(ours.test, cnn.test, *others[:1]), stack_methods(cnn.val, *others[1:])
    val = ours.val if spaces[1:] else stack_methods(ours.val, other_val)  # rows of folds are unknown to the others
    with atomic_folder(run.path("data/predictions")) as draft:
        test.save(draft / "test")
        val.save(draft / "val")
    scored, scoring = scores(test, p.evaluate.bins), p.evaluate.model_dump()
    run.write_metrics({name: scored[name] for name in scored if name in BASE})
    run.write_metrics({name: scored[name] for name in scored if name not in BASE}, "calibration")
    run.write_metrics(ours.tuned | cnn.tuned, "tuned")
    run.write_metrics(headroom(spaces[0], p.k_eval), "headroom")
    intervals, paired = intervals_and_tests(test, pairs(test.methods), **scoring, seed=run.seed)
    validation = values(ours.val, p.evaluate.bins) + values(other_val, p.evaluate.bins)
    run.write_plots(
        intervals=intervals, paired=paired, reliability=reliability(test, p.evaluate.bins), validation=validation
    )
    drawing = (p.evaluate.resamples, p.evaluate.confidence, run.seed)
    metrics, tables = selective_tables(test, val, p.selective.risks, p.selective.alphas, *drawing)
    run.write_metrics(metrics, "selective")
    run.write_plots(None, **tables)


if __name__ == "__main__":
    main(evaluate)

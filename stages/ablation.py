"""Each part of the head off, added, and alone; and what a weight on hard queries changes."""

from attnknn.core.artifacts import TEST
from attnknn.experiments.ablation import ablate
from attnknn.experiments.hard_queries import by_subset, compare_weighting, count_hard, disagreement, hard_shares
from pipeline.load import load_spaces
from pipeline.run import Run, main


def ablation(run: Run) -> None:
    p, spaces, scoring = run.params, load_spaces(run), run.params.evaluate.model_dump()
    k = min(p.ablation.k or p.k_train, *(space.neighbours.ids.shape[1] for space in spaces))
    settings = {"k": k, "fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "seed": run.seed}
    settings |= {"device": run.device, "workers": run.workers}
    with run.progress("head") as bar:
        settings["progress"] = lambda _: bar.update()
        resamples = {"resamples": p.ablation.resamples}
        run.write_plots(ablation=ablate(spaces, p.ablation.repeats, scoring=scoring | resamples, **settings))
        predictions = compare_weighting(spaces, p.hard.weight, p.hard.repeats, **settings)
    hard = disagreement(spaces[:1], TEST, k) >= p.hard.disagreement
    if not hard.any():
        print(f"{run.label}: no test row of which {p.hard.disagreement:g} of the neighbours disagree")
    means, intervals, paired = by_subset(predictions, hard, **scoring, seed=run.seed)
    table = count_hard(spaces, k, p.hard.disagreement)
    run.write_metrics({"share": hard_shares(table), "all": means}, "hard")
    run.write_plots(hard=intervals, hard_paired=paired, hard_share=table)


if __name__ == "__main__":
    main(ablation)

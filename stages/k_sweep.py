"""Every method at each k: baselines tuned again, attention fitted again."""

from attnknn.core.artifacts import BANK
from attnknn.experiments.k_sweep import root, sweep, swept_ks
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main


def k_sweep(run: Run) -> None:
    p, spaces = run.params, load_spaces(run)
    stored, bank = min(space.neighbours.ids.shape[1] for space in spaces), len(spaces[0].embeddings.rows(BANK))
    ks = swept_ks(p.k_sweep.ks, bank, stored)
    if left_out := sorted({*p.k_sweep.ks, root(bank)} - set(ks)):
        print(f"{run.label}: without k {', '.join(map(str, left_out))}, above the {stored} stored")
    scoring = p.evaluate.model_dump() | {"resamples": p.k_sweep.resamples}
    fitting = load_heads(run, "prototypes"), p.train_attention.model_dump(), p.tune.model_dump()
    result = sweep(spaces, ks, *fitting, scoring, run.seed, run.device, run.track("k"), run.workers)
    result.predictions.save(run.path("data/k_sweep"))
    run.write_metrics(result.best)
    run.write_tables(k_sweep=result.table, k_sweep_paired=result.paired)


if __name__ == "__main__":
    main(k_sweep)

"""Time and recall of indexes on the dataset's own embeddings, and what heads add per query."""

from attnknn.core.artifacts import BANK, TEST
from attnknn.evaluation.evaluate import tuned_baselines
from attnknn.experiments.profile import accuracy_lost, machine, profile_heads, profile_indexes
from attnknn.heads.baselines import choices_of_k
from attnknn.index.faiss_index import set_threads
from pipeline.load import load_heads, load_spaces
from pipeline.run import Run, main


def profile(run: Run) -> None:
    about: dict[str, object] = {**machine()}  # with the load before ours
    set_threads(run.params.threads)
    p, t, tune, spaces, device = run.params, run.params.profile, run.params.tune, load_spaces(run), run.device
    space = spaces[0]
    k = min(p.profile.k, space.neighbours.ids.shape[1])
    heads = tuned_baselines(spaces, choices_of_k(tune.ks, k), tune.temperatures, tune.priors)[0]
    heads |= load_heads(run, "attention")
    timing = {"repeats": t.repeats, "singles": t.singles, "seed": run.seed}
    kinds = {"hnsw": t.hnsw.model_dump(), "ivf": t.ivf.model_dump()}
    table, by_index = profile_indexes(space.embeddings, k, space.neighbours.metric, **kinds, **timing)
    scoring = p.evaluate.model_dump() | {"resamples": t.resamples}
    about |= {"bank_rows": len(space.embeddings.rows(BANK)), "test_rows": len(space.embeddings.rows(TEST))}
    about |= {"dimensions": space.embeddings.z.shape[1], "k": k, "repeats": t.repeats, "singles": t.singles}
    about |= {"threads": p.threads, "device": device}
    run.write_tables(
        profile=table,
        profile_heads=profile_heads(space, heads, k, **timing, device=device),
        profile_paired=accuracy_lost(space, by_index, heads, k, scoring, run.seed, device),
        profile_about=[{"quantity": name, "value": value} for name, value in about.items()],
    )


if __name__ == "__main__":
    main(profile)

"""Small tables split repeatedly, with encoders, memories and peers of their own; for splits.datasets."""

from functools import partial

from attnknn.core.files import atomic_folder, write_json
from attnknn.data.split import prepare_repeats
from attnknn.experiments.train_splits import train_split
from pipeline.run import Run, main
from pipeline.search import search_settings


def train_splits(run: Run) -> None:
    p = run.params
    seeds, prepare = range(p.splits.first, p.splits.first + p.splits.count), p.prepare.model_dump()
    splits = prepare_repeats(p.source, run.path("data/raw"), seeds, p.splits.largest, **prepare)
    with atomic_folder(run.path("data/splits")) as draft:
        rows = max((len(split.y) for split in splits.values()), default=0)
        write_json(draft / "splits.json", {"seeds": list(splits), "rows": rows})
        if splits:
            from attnknn.core.parallel import run_parallel  # imports torch, which larger tables and images do not need

            settings = (p.train_embedder, search_settings(run), p.splits.refit, p.peers.methods, p.peers.tries)
            calls = [partial(train_split, split, *settings, seed, draft / str(seed)) for seed, split in splits.items()]
            list(run.track("split")(run_parallel(calls, run.workers), total=len(calls)))


if __name__ == "__main__":
    main(train_splits)

"""Train encoders and plain networks on wrong labels or rare classes; for train_corrupted.seeds."""

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder
from attnknn.experiments.train_corrupted import train_on_imbalance, train_on_noise
from pipeline.run import Run, main
from pipeline.search import search_settings


def train_corrupted(run: Run) -> None:
    p, split = run.params, Split.load(run.path("data/split"))
    kind, rate = run.item["condition"].split("-")
    common = {"search": search_settings(run), "seed": run.seed, "label": run.label}
    with atomic_folder(run.path("data/train_corrupted")) as draft:
        if kind in ("long_tail", "step"):
            train_on_imbalance(split, kind, float(rate), p.train_embedder, **common, out=draft)
        else:
            cleaning = (p.train_corrupted.rounds, p.train_corrupted.share)
            train_on_noise(split, kind, float(rate), p.train_embedder, *cleaning, **common, out=draft)


if __name__ == "__main__":
    main(train_corrupted)

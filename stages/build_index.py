"""Index the bank rows; store the neighbours of every row, and the statistics of every bank row, once."""

from attnknn.core.artifacts import Embeddings
from attnknn.core.files import atomic_folder
from attnknn.index.stored import store
from attnknn.neighbours.search import bank_rows, retrieve, search
from attnknn.neighbours.statistics import neighbour_statistics
from pipeline.run import Run, main
from pipeline.search import search_settings


def build_index(run: Run) -> None:
    p, folder = run.params, run.path("data/embeddings")
    embeddings, settings = Embeddings.load(folder / "main"), search_settings(run)
    index = p.build_index.model_dump()
    if index["uri"]:
        index["uri"] = f"{index['uri'].rstrip('/')}/{run.dataset}-{run.seed}.lance"
    bank = store(run.path("models/bank"), *bank_rows(embeddings), **index)
    cluster = run.cluster if index["kind"] == "lance" else None
    with atomic_folder(run.path("data/neighbours")) as draft:
        neighbours = search(bank, embeddings, p.k_max, run.device, cluster)
        neighbours.save(draft / "main" / "neighbours")
        neighbour_statistics(embeddings, neighbours, p.statistics.sizes).save(draft / "main" / "statistics")
        for fold in folder.glob("fold_*"):
            space = retrieve(Embeddings.load(fold), **settings)
            space.neighbours.save(draft / fold.name / "neighbours")
            space.statistics.save(draft / fold.name / "statistics")


if __name__ == "__main__":
    main(build_index)

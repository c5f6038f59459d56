"""A table of few rows split anew by seeds one after another: encoder, memories, folds and peers of every split."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from tqdm import tqdm

from attnknn.core.artifacts import Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.data.split import prepare_repeats
from stages.params import read_params, run


def one(data: Split, seed: int, p: SimpleNamespace, device: str, out: Path) -> None:
    """What the methods need of one split, to OUT: its space, folds, both as the test rows ask them, peers' answers."""
    from attnknn.encoder.encoder import embed_split
    from attnknn.experiments.peers import fit_and_predict
    from attnknn.index.faiss_index import set_threads
    from attnknn.neighbours.search import retrieve, with_larger_bank
    from attnknn.neighbours.space import EmbeddingSpace
    from stages.crossfit import folds
    from stages.train_embedder import train

    set_threads(1)
    encoder, _ = train(data, p.train_embedder, seed, device, f"split {seed}", None)
    e = embed_split(encoder, data, device, p.train_embedder.bf16)
    searching, ask = (
        (p.k_max, p.evidence.sizes, p.build_index.metric, device),
        with_larger_bank if p.splits.refit else retrieve,
    )
    retrieve(e, *searching).save(out / "space")
    ask(e, *searching).save(out / "asked")
    EmbeddingSpace.save_folds(held := list(folds(data, p, seed, device, f"split {seed}, fold")), out / "folds")
    again = folds(data, p, seed, device, f"split {seed}, refit", refit=True) if p.splits.refit else held
    EmbeddingSpace.save_folds((ask(replace(of.embeddings, part=e.part), *searching) for of in again), out / "members")
    if p.peers.methods:
        fit_and_predict(data, p.peers.methods, p.peers.tries, seed, 1, p.splits.refit)[0].save(out / "peers")


def main(dataset: str, raw: Path, out: Path) -> None:
    """Read RAW; write a folder a split to OUT; where nothing is to be split anew, none, and torch is not imported."""
    p = read_params(
        dataset, "sources", "prepare", "train_embedder", "build_index", "crossfit", "evidence", "peers", "splits",
        "k_max", "device", "threads")  # fmt: skip
    seeds, most = range(p.splits.first, p.splits.first + p.splits.count), p.splits.largest
    data = prepare_repeats(p.sources, raw, seeds, most, **p.prepare.model_dump())
    with atomic_folder(out) as draft:
        rows = max((len(of.y) for of in data.values()), default=0)
        write_json(draft / "splits.json", {"seeds": list(data), "rows": rows})
        if data:
            from attnknn.core.device import n_workers, use_device
            from attnknn.core.parallel import run_parallel

            device = use_device(p.device, p.threads)
            calls = [partial(one, of, seed, p, device, draft / str(seed)) for seed, of in data.items()]
            done = run_parallel(calls, n_workers(device, p.threads))
            list(tqdm(done, f"train_splits {dataset}", len(calls), unit="split", delay=2, disable=None))


if __name__ == "__main__":
    run(main)

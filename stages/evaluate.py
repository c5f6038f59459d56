"""Compare all methods on the test rows: scores, intervals, paired tests, reliability."""

from pathlib import Path

from attnknn.core.artifacts import Embeddings, Predictions
from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder, read_json, write_csv, write_json
from attnknn.evaluation.calibration import KINDS
from attnknn.evaluation.evaluate import classifier, compare, headroom, together
from attnknn.evaluation.paired_tests import BASE, intervals_and_tests, pairs, reliability, scores, values
from attnknn.heads.registry import load_head
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run


def main(
    dataset: str,
    seed: int,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    folds: Path,
    heads: Path,
    cnn: Path,
    peers: Path,
    out: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read EMBEDDINGS, NEIGHBOURS, EVIDENCE, FOLDS, HEADS, CNN, PEERS; write OUT (predictions), METRICS and PLOTS."""
    p = read_params(dataset, "evaluate", "tune", "k_eval", "device", "threads")
    device, e = use_device(p.device, p.threads), p.evaluate
    spaces = [EmbeddingSpace.load(embeddings, neighbours, evidence), *EmbeddingSpace.load_folds(folds)]
    fitted = {name: load_head(heads / name).to(device) for name in ("attention", "prototypes")}
    made = compare(spaces, fitted, p.k_eval, **p.tune.model_dump(), calibrations=KINDS, device=device)
    plain = classifier(Embeddings.load(cnn), spaces[0], p.tune.ridges, KINDS)
    stored = min(space.neighbours.ids.shape[1] for space in spaces)
    for name in [m for m, of in made.tuned.items() if of.get("k") == p.k_eval < stored]:
        print(f"{name}: best k on val is {p.k_eval}, the largest that k_eval allows; raise k_eval (stored: {stored})")
    asked = [Predictions.load(peers / part) for part in read_json(peers / "peers.json")["parts"]]
    test, others = together(made.test, plain.test, *asked[:1]), together(plain.val, *asked[1:])
    val = made.val if spaces[1:] else together(made.val, others)  # a fold's rows are unknown to the others
    with atomic_folder(out) as draft:
        test.save(draft / "test")
        val.save(draft / "val")
    scored = scores(test, e.bins)
    write_json(metrics / "evaluate.json", {name: scored[name] for name in scored if name in BASE})
    write_json(metrics / "calibration.json", {name: scored[name] for name in scored if name not in BASE})
    write_json(metrics / "tuned.json", made.tuned | plain.tuned)
    write_json(metrics / "headroom.json", headroom(spaces[0], p.k_eval))
    found = intervals_and_tests(test, pairs(test.methods), **e.model_dump(), seed=seed)
    tables = dict(zip(("intervals", "paired"), found, strict=True)) | {"reliability": reliability(test, e.bins)}
    tables["validation"] = values(made.val, e.bins) + values(others, e.bins)
    for name, table in tables.items():
        write_csv(plots / name / f"{dataset}-{seed}.csv", table)


if __name__ == "__main__":
    run(main)

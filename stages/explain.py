"""Example predictions with their neighbours, confusion of classes, and a t-SNE of the embeddings."""

from pathlib import Path

from PIL import Image

from attnknn.core.artifacts import Predictions, Split
from attnknn.core.device import use_device
from attnknn.core.files import atomic_folder, read_json, write_csv, write_json
from attnknn.evaluation.confusion import confusion, confusion_tests, shared_errors
from attnknn.experiments.gallery import gallery
from attnknn.experiments.tsne import tsne_table
from attnknn.heads.attention import Distance
from attnknn.heads.registry import load_head
from attnknn.neighbours.space import EmbeddingSpace
from stages.params import read_params, run

COMPARED = ("attention", "distance_vector", "linear_temperature")
MISTAKE = ("actual", "predicted", "rows", "method", "count", "baseline", "baseline_count", "both", "p")


def main(
    dataset: str,
    seed: int,
    split: Path,
    embeddings: Path,
    neighbours: Path,
    evidence: Path,
    heads: Path,
    predictions: Path,
    tuned: Path,
    metrics: Path,
    plots: Path,
) -> None:
    """Read SPLIT, EMBEDDINGS, NEIGHBOURS, EVIDENCE, HEADS, PREDICTIONS and TUNED; write METRICS, the rest to PLOTS."""
    p = read_params(dataset, "explain", "k_eval", "device", "threads")
    device, e, item = use_device(p.device, p.threads), p.explain, f"{dataset}-{seed}"
    test, space = Predictions.load(predictions / "test"), EmbeddingSpace.load(embeddings, neighbours, evidence)
    attention, distance = load_head(heads / "attention").to(device), Distance(**read_json(tuned)["distance"])
    args = (Split.load(split), space, attention, distance, test, p.k_eval, e.cases, e.neighbours)
    cases, strips = gallery(*args, device=device)
    with atomic_folder(plots / "gallery" / item) as draft:
        write_json(draft / "gallery.json", cases)
        for name, strip in strips.items():
            Image.fromarray(strip).save(draft / name, optimize=True)
    methods = [name for name in COMPARED if name in test.methods]
    write_json(metrics, shared_errors(test, methods))
    write_csv(plots / "confusion" / f"{item}.csv", confusion(test, methods))
    tests = confusion_tests(test, "attention", "distance_vector")
    write_csv(plots / "confusion_paired" / f"{item}.csv", tests, MISTAKE)
    points = tsne_table(space, test, e.tsne_rows, e.perplexity, seed)
    if not points:
        print(f"explain: {dataset}/{seed} has {len(test.rows)} test rows, too few for a t-SNE")
    write_csv(plots / "tsne" / f"{item}.csv", points, ("x", "y", "actual", "predicted", "wrong"))


if __name__ == "__main__":
    run(main)

"""Which neighbours decided, which classes are mistaken, and how the embeddings lie."""

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
    found, retrieved = Predictions.load(predictions / "test"), EmbeddingSpace.load(embeddings, neighbours, evidence)
    attention, distance = load_head(heads / "attention").to(device), Distance(**read_json(tuned)["distance"])
    shown = (Split.load(split), retrieved, attention, distance, found, p.k_eval, e.cases, e.neighbours)
    cases, strips = gallery(*shown, device=device)
    with atomic_folder(plots / "gallery" / item) as draft:
        write_json(draft / "gallery.json", cases)
        for name, strip in strips.items():
            Image.fromarray(strip).save(draft / name, optimize=True)
    methods = [name for name in COMPARED if name in found.methods]
    write_json(metrics, shared_errors(found, methods))
    write_csv(plots / "confusion" / f"{item}.csv", confusion(found, methods))
    tests = confusion_tests(found, "attention", "distance_vector")
    write_csv(plots / "confusion_paired" / f"{item}.csv", tests, MISTAKE)
    places = tsne_table(retrieved, found, e.tsne_rows, e.perplexity, seed)
    if not places:
        print(f"explain: {dataset}/{seed} has {len(found.rows)} test rows, too few for a t-SNE")
    write_csv(plots / "tsne" / f"{item}.csv", places, ("x", "y", "actual", "predicted", "wrong"))


if __name__ == "__main__":
    run(main)

"""Results as the stages write them, from made-up predictions and the project's own scoring."""

from pathlib import Path

import numpy as np

from attnknn.artifacts import Predictions
from attnknn.files import write_csv, write_json
from attnknn.scorecard import intervals_and_tests, reliability, scores

# method: (strength of the evidence for the true class, how much too sure)
TIE = {
    "uniform": (1.9, 3.2),
    "distance": (2.0, 2.8),
    "distance_vector": (2.0, 2.1),
    "attention": (2.0, 2.1),
    "linear": (2.1, 2.7),
    "linear_temperature": (2.1, 2.0),
}
WIN = TIE | {"attention": (3.0, 2.8)}
LOSS = TIE | {"attention": (1.2, 4.0)}


def predictions(strengths: dict[str, tuple[float, float]], rows: int, classes: int = 5, seed: int = 0) -> Predictions:
    """Softmax of shared noise plus each method's evidence for the true class, sharpened."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=rows)
    shared, probs = rng.normal(size=(rows, classes)), []
    for strength, sharp in strengths.values():
        logits = sharp * (strength * np.eye(classes)[y] + shared + 0.2 * rng.normal(size=(rows, classes)))
        e = np.exp(logits - logits.max(1, keepdims=True))
        probs.append(e / e.sum(1, keepdims=True))
    names = tuple("abcdefghij"[:classes])
    stacked = np.stack(probs).astype(np.float32)
    return Predictions(np.arange(rows, dtype=np.int32), y, stacked, tuple(strengths), names)


def write_results(
    root: Path,
    dataset: str,
    seed: int,
    strengths: dict[str, tuple[float, float]],
    rows: int = 300,
    resamples: int = 100,
) -> None:
    """Write root/metrics and root/plots of one dataset and seed."""
    made = predictions(strengths, rows, seed=seed)
    folder, plots, item = root / "metrics" / dataset / str(seed), root / "plots", f"{dataset}-{seed}.csv"
    sizes = {"rows": 6 * rows, "bank": 3 * rows, "fit": rows, "val": rows, "test": rows, "classes": 5}
    write_json(folder / "prepare.json", sizes)
    write_json(folder / "train_embedder.json", {"best_epoch": 3, "val_accuracy": 0.9})
    head = {"best_epoch": 2, "fit_nll": 0.30, "val_nll": 0.31, "val_nll_start": 0.35, "temperature": 0.5, "prior": 0.01}
    write_json(folder / "train_attention.json", head)
    write_json(folder / "evaluate.json", scores(made, 15))
    tuned = {
        "uniform": {"k": 5, "prior": 0.003},
        "distance": {"k": 16, "temperature": 0.35, "prior": 0.003},
        "distance_vector": {"ridge": 0.01},
        "linear_temperature": {"temperature": 1.31},
    }
    write_json(folder / "tuned.json", tuned)
    epochs = range(1, 7)
    loss = [{"epoch": e, "loss": 2.0 / e, "val_accuracy": None if e % 3 else 0.87 + 0.01 * e} for e in epochs]
    write_csv(plots / "training" / item, loss)
    nll = [{"epoch": e, "fit_nll": 0.35 - 0.02 * e, "val_nll": 0.31 + 0.01 * (e - 2) ** 2} for e in range(6)]
    write_csv(plots / "attention" / item, nll)
    intervals, paired = intervals_and_tests(made, "attention", 15, resamples, 0.95, seed)
    tables = {"intervals": intervals, "paired": paired, "reliability": reliability(made, 15)}
    for name, table in tables.items():
        write_csv(plots / name / item, table)

"""Results in the stages' file formats, from synthetic predictions and the project's own scoring."""

from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.artifacts import Predictions
from attnknn.core.files import write_csv, write_json
from attnknn.evaluation.method import KINDS
from attnknn.evaluation.opponents import (
    TUNED,
    UNDER_CONDITIONS,
    compare_with_opponents,
    opponents_over_repeats,
    score_tables,
    scores_by_row,
)
from attnknn.evaluation.paired_tests import Pair, intervals_and_tests, mean_over_repeats

# method: (strength of the evidence for the true class, overconfidence)
Strengths = dict[str, tuple[float, float]]
TIE: Strengths = {
    "uniform": (1.9, 3.2),
    "distance": (2.0, 2.8),
    "distance_vector": (2.0, 2.1),
    "attention": (2.0, 2.1),
    "prototypes": (1.9, 2.1),
    "linear": (2.1, 2.7),
    "linear_temperature": (2.1, 2.0),
}
WIN = TIE | {"attention": (3.0, 2.8)}
LOSS = TIE | {"attention": (1.2, 4.0)}
CONDITIONS = {"noise": ("noise 0.0", "noise 0.3", "noise 0.6"), "imbalance": ("long tail 0.1", "long tail 0.01")}


def calibrated(strengths: Strengths) -> Strengths:
    """Add the calibrated methods: equally strong, less overconfident."""
    result = dict(strengths)
    for base in ("uniform", "distance", "attention", "prototypes", "linear"):
        for i, kind in enumerate(KINDS if base in strengths else ()):
            strength, sharp = strengths[base]
            result.setdefault(f"{base}_{kind}", (strength, 1.9 + 0.2 * (sharp - 1.9) + 0.05 * i))
    return result


def predictions(strengths: Strengths, rows: int, classes: int = 5, seed: int = 0) -> Predictions:
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


def skewed_losses(rows: int, sharpness: float) -> np.ndarray:
    """Differences in NLL, of mean 0, of two classifiers of two classes that are alike but for one's overconfidence.

    One of them is wrong on a fifth of the rows; at a sharpness of 2 the skewness is 3.6, the excess kurtosis 19.
    """
    rng = np.random.default_rng(0)
    evidence = 2.5 + 2.2 * rng.normal(size=(1, rows)) + rng.normal(size=(2, rows))
    losses = np.logaddexp(0, -np.array([[sharpness], [1.0]]) * evidence)
    return losses[0] - losses[1] - (losses[0] - losses[1]).mean()


def binary(rates: dict[str, float], rows: int = 400, seed: int = 0) -> Predictions:
    """Predictions of two classes in which each method is right at its rate, always with the same confidence."""
    rng, y = np.random.default_rng(seed), np.arange(rows) % 2
    right = np.stack([rng.random(rows) < rate for rate in rates.values()])
    probs = 0.1 + 0.8 * np.eye(2, dtype=np.float32)[np.where(right, y, 1 - y)]
    return Predictions(np.arange(rows, dtype=np.int32), y, probs.astype(np.float32), tuple(rates), ("a", "b"))


def write_results(
    root: Path, dataset: str, seed: int, strengths: Strengths, rows: int = 300, resamples: int = 100
) -> None:
    """Write root/metrics and root/plots of one dataset and seed, of the stages that every dataset has."""
    strengths = calibrated(strengths)
    on_test, on_val = (predictions(strengths, rows, seed=draw) for draw in (seed, seed + 1000))
    folder, plots, item = root / "metrics" / dataset / str(seed), root / "plots", f"{dataset}-{seed}.csv"
    sizes = {"rows": 6 * rows, "bank": 3 * rows, "fit": rows, "val": rows, "test": rows, "classes": 5}
    write_json(folder / "prepare.json", sizes)
    write_json(folder / "train_embedder.json", {"best_epoch": 3, "val_accuracy": 0.9})
    head = {
        "best_epoch": 2,
        "fit_loss": 0.30,
        "val_nll": 0.31,
        "val_nll_start": 0.35,
        "temperature": 0.5,
        "prior": 0.01,
    }
    write_json(folder / "train_attention.json", head)
    scored, tables = score_tables(on_test, on_val, 15, resamples, 0.95, seed)
    write_json(folder / "evaluate.json", scored)
    write_json(folder / "headroom.json", {"oracle_at_1": 0.861, "oracle_at_5": 0.942, "oracle_at_k": 0.987, "k": 50})
    tuned = {
        "uniform": {"k": 5, "prior": 0.003},
        "distance": {"k": 16, "temperature": 0.35, "prior": 0.003},
        "distance_vector": {"ridge": 0.01},
        "distance_isotonic": {"mix": 0.03},
        "uniform_dirichlet": {"unchanged": 1.0},
        "linear_temperature": {"temperature": 1.31},
    }
    write_json(folder / "tuned.json", tuned)
    epochs = range(1, 7)
    loss = [{"epoch": e, "loss": 2.0 / e, "val_accuracy": None if e % 3 else 0.87 + 0.01 * e} for e in epochs]
    write_csv(plots / "training" / item, loss)
    nll = [{"epoch": e, "fit_loss": 0.35 - 0.02 * e, "val_nll": 0.31 + 0.01 * (e - 2) ** 2} for e in range(6)]
    write_csv(plots / "attention" / item, nll)
    for name, table in tables.items():
        write_csv(plots / name / item, table)


def write_conditions(
    root: Path, dataset: str, seed: int, strengths: Strengths, rows: int = 300, resamples: int = 100, repeats: int = 2
) -> None:
    """Write the outputs of `noise` and `imbalance`; methods get weaker with each condition."""
    for stage, names in CONDITIONS.items():
        table: list[dict[str, Any]] = []
        for i, condition in enumerate(names):
            weaker = {
                name: (strength - (0.05 if name == "attention" else 0.15) * i, sharp + 0.15 * i)
                for name, (strength, sharp) in strengths.items()
            }
            draws = [7 * seed + 10 * i + repeat for repeat in range(repeats)]
            by_draw = [(predictions(weaker, rows, seed=d), predictions(weaker, rows, seed=d + 1000)) for d in draws]
            runs = [
                compare_with_opponents(test, val, 15, resamples, 0.95, seed, UNDER_CONDITIONS, TUNED)
                for test, val in by_draw
            ]
            by_row = [
                scores_by_row(test, (row["method"] for row in run))
                for (test, _), run in zip(by_draw, runs, strict=True)
            ]
            over = opponents_over_repeats(runs, by_row, 0.95)
            table += [{"condition": condition, **row} for row in over]
        write_csv(root / "plots" / stage / f"{dataset}-{seed}.csv", table)


# variant: (group, reference, strength, overconfidence)
VARIANTS = {
    "full": ("full", "full", 2.4, 2.3),
    "all evidence": ("without", "full", 2.1, 2.3),
    "label_bias": ("without", "full", 2.4, 2.35),
    "null": ("without", "full", 2.35, 2.6),
    "self_attention": ("with", "full", 2.41, 2.3),
    "temperature": ("alone", "distance", 2.0, 2.75),
    "agreement": ("alone", "distance", 2.15, 2.6),
    "historic": ("reference", "full", 1.9, 2.8),
    "prototypes": ("reference", "full", 2.3, 2.3),
}


def write_ablation(
    root: Path, dataset: str, seed: int, rows: int = 300, resamples: int = 100, repeats: int = 2
) -> None:
    """Write the output of `ablation`."""
    table: list[dict[str, Any]] = []
    for repeat in range(repeats):
        strengths = {name: (strength, sharp) for name, (_, _, strength, sharp) in VARIANTS.items()}
        on_test = predictions(strengths | {"distance": (2.0, 2.8)}, rows, seed=seed + repeat)
        against: list[Pair] = [(name, reference) for name, (_, reference, _, _) in VARIANTS.items()]
        intervals, paired = intervals_and_tests(on_test, against, 15, resamples, 0.95, seed)
        known = {(row["method"], row["metric"]): row["value"] for row in intervals}
        for row in paired:
            name, metric = row["method"], row["metric"]
            group, reference, _, _ = VARIANTS[name]
            key = {"variant": name, "group": group, "repeat": repeat, "metric": metric}
            value = known[name, metric]
            score = {"fit": 0.8 * value, "validation": 0.9 * value, "value": value, "trained": "yes"}
            difference = {column: row[column] for column in ("difference", "low", "high", "p")}
            table.append({**key, **score, "reference": reference, **difference})
    folded = mean_over_repeats(table, ("variant", "group", "metric"))
    write_csv(root / "plots" / "ablation" / f"{dataset}-{seed}.csv", folded)

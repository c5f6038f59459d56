"""Example predictions: test rows of each kind with the neighbours of highest weight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from attnknn.core.artifacts import Predictions, Split
from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, write_csv, write_json
from attnknn.evaluation.paired_tests import Table
from attnknn.experiments.tsne import TSNE_COLUMNS
from attnknn.heads.attention import Head
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.objectives import hardness

KINDS = {"wrong": 1, "uncertain": 1, "right": 2}  # examples of each
TOP = 3  # classes shown with their probabilities
MAX_FEATURES = 12  # shown of a table row


def pick_cases(probs: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Select rows of each of `KINDS`, without replacement; ties in the order of the rows.

    * wrong: the highest confidence among the wrong predictions.
    * uncertain: the lowest confidence.
    * right: the highest confidence among the right predictions, of different classes if there are several.

    Args:
        probs: (N, C).
        y: (N,) true classes.

    Returns:
        Positions of the rows by kind.
    """
    confidence, right = probs.max(1), probs.argmax(1) == y
    by_confidence = np.argsort(-confidence, kind="stable")
    confident_right = by_confidence[right[by_confidence]]
    rank_in_class = pd.Series(y[confident_right]).groupby(y[confident_right]).cumcount()
    orders = {
        "wrong": by_confidence[~right[by_confidence]],
        "uncertain": np.argsort(confidence, kind="stable"),
        "right": confident_right[np.argsort(rank_in_class, kind="stable")],
    }
    selected: dict[str, np.ndarray] = {}
    available = np.ones(len(y), dtype=bool)
    for kind, count in KINDS.items():
        selected[kind] = orders[kind][available[orders[kind]]][:count]
        available[selected[kind]] = False
    return selected


@dataclass(frozen=True)
class Decision:
    """One prediction and its neighbours of highest weight.

    Attributes:
        probs: (C,) class probabilities.
        ids: (n,) the bank rows of highest weight, highest first.
        weights: (n,) their weights.
        other_weights: (n,) their weights under another head.
        null: weight of the null neighbours; null and the weights of all k neighbours sum to 1.
        rest: weight of the k − n other neighbours.
    """

    probs: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    other_weights: np.ndarray
    null: float
    rest: float


@torch.inference_mode()
def decisions(
    head: Head, other: Head, space: EmbeddingSpace, rows: np.ndarray, k: int, count: int, device: str = "cpu"
) -> list[Decision]:
    """Predictions of a head, with the `count` neighbours of highest weight and their weights under another head.

    Raises:
        InputError: k is above the neighbours stored, or a row has no stored neighbours.
    """
    batch = space.around(rows, k, {*head.needs, *other.needs}).to(device)
    tensors = (*head(batch), other(batch)[1])
    probs, weights, other_weights = (t.cpu().double().numpy() for t in tensors)
    ids = space.neighbours.take(rows, k)[0]
    result = []
    for i in range(len(rows)):
        top = np.argsort(-weights[i], kind="stable")[:count]
        top = top[ids[i, top] >= 0]
        top_weight, total = float(weights[i, top].sum()), float(weights[i].sum())
        null, rest = max(0.0, 1 - total), max(0.0, total - top_weight)
        result.append(Decision(probs[i], ids[i, top], weights[i, top], other_weights[i, top], null, rest))
    return result


def format_features(x: np.ndarray, features: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Format the `MAX_FEATURES` features in which the first row differs most from the others.

    One-hot columns `feature = category` become one feature with the category as value. Numbers are as in the `Split`:
    standardised, in standard deviations from the bank's mean.

    Args:
        x: (M, F), the query first.
        features: the F names.

    Returns:
        Names of the features, and for each row their formatted values.
    """
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(features):
        stem, separator, _ = name.rpartition(" = ")
        # A numeric column's own name may hold " = " too.
        one_hot = separator and bool(np.isin(x[:, i], (0, 1)).all())
        columns.setdefault(stem if one_hot else name, []).append(i)
    texts: dict[str, list[str]] = {}
    gap: dict[str, float] = {}
    for name, idx in columns.items():
        if features[idx[0]] == name:
            texts[name] = [f"{value:.2f}".replace("-", "−") for value in x[:, idx[0]]]
            gap[name] = float(np.abs(x[1:, idx[0]] - x[0, idx[0]]).mean()) if len(x) > 1 else 0.0
            continue
        categories = [features[i].removeprefix(f"{name} = ") for i in idx]
        texts[name] = [categories[int(row.argmax())] if row.any() else "(none)" for row in x[:, idx]]
        gap[name] = float(np.mean([text != texts[name][0] for text in texts[name][1:]])) if len(x) > 1 else 0.0
    names = sorted(columns, key=lambda name: -gap[name])[:MAX_FEATURES]
    return names, [[texts[name][row] for name in names] for row in range(len(x))]


def _strip(images: np.ndarray) -> np.ndarray:
    """Images (M, C, H, W) side by side: (H, M·W) in greyscale, (H, M·W, 3) in colour."""
    strip = np.concatenate(list(np.moveaxis(images, 1, 3)), axis=1)
    return strip[:, :, 0] if strip.shape[2] == 1 else strip[:, :, :3]


def gallery(
    split: Split,
    space: EmbeddingSpace,
    head: Head,
    other: Head,
    predictions: Predictions,
    k: int,
    neighbours: int,
    method: str = "attention",
    device: str = "cpu",
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Describe test rows of each kind of `pick_cases`, with their neighbours of highest weight.

    Args:
        head: of `method` in `predictions`.
        other: the head whose weights are shown beside, as tuned distance weighting.
        k: neighbours of both heads.
        neighbours: number shown for each row.

    Returns:
        A JSON object: `images` (bool), `k`, and `cases`, each with kind, row, actual, predicted, disagreement (share of
        the k neighbours of another class), top (class and probability of the likeliest), null, rest, neighbours (row,
        class, weight, distance_weight); for an image `picture`, the key of its strip in the second result (the query
        first, then its neighbours in order); for a table row `features`, names, and `values`, texts of the query first,
        then of each neighbour.
        And the strips: uint8, (H, W·(1 + n)), in colour with 3 channels last.
    """
    require(method in predictions.methods, f"{method}: no such method; there are {', '.join(predictions.methods)}")
    rows, y = np.asarray(predictions.rows), np.asarray(predictions.y)
    disagreement = hardness(space.around(rows, k).labels, torch.from_numpy(np.array(y))).numpy()
    probs = np.asarray(predictions.probs[predictions.methods.index(method)])
    selected = pick_cases(probs, y)
    idx = np.concatenate(list(selected.values()))
    kinds = [(kind, i) for kind, positions in selected.items() for i in range(len(positions))]
    cases, strips = [], {}
    results = decisions(head, other, space, rows[idx], k, neighbours, device)
    for (kind, number), i, d in zip(kinds, idx, results, strict=True):
        top = np.argsort(-d.probs, kind="stable")[:TOP]
        case: dict[str, Any] = {
            "kind": kind,
            "row": int(rows[i]),
            "actual": split.classes[y[i]],
            "predicted": split.classes[top[0]],
            "disagreement": float(disagreement[i]),
            "top": [{"class": split.classes[c], "probability": float(d.probs[c])} for c in top],
            "null": d.null,
            "rest": d.rest,
            "neighbours": [
                {
                    "row": int(row),
                    "class": split.classes[space.embeddings.y[row]],
                    "weight": float(weight),
                    "distance_weight": float(other_weight),
                }
                for row, weight, other_weight in zip(d.ids, d.weights, d.other_weights, strict=True)
            ],
        }
        x = np.asarray(split.x[np.r_[rows[i], d.ids]])
        if split.is_image:
            case["picture"] = f"{kind}-{number}.png"
            strips[case["picture"]] = _strip(x)
        else:
            case["features"], case["values"] = format_features(x, split.features)
        cases.append(case)
    return {"images": split.is_image, "k": k, "cases": cases}, strips


def save_gallery(cases: Mapping[str, Any], strips: Mapping[str, np.ndarray], tsne: Table, folder: Path) -> None:
    """Write the results of `gallery`, gallery.json and a PNG for each strip; and tsne.csv, of `tsne_table`."""
    with atomic_folder(folder) as draft:
        write_json(draft / "gallery.json", cases)
        write_csv(draft / "tsne.csv", tsne, TSNE_COLUMNS)
        for name, strip in strips.items():
            Image.fromarray(strip).save(draft / name, optimize=True)

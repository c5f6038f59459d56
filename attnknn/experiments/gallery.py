"""Example predictions: test rows of each kind with the neighbours of highest weight."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from attnknn.core.artifacts import Predictions, Split
from attnknn.core.files import atomic_folder, write_json
from attnknn.heads.attention import Head
from attnknn.neighbours.space import EmbeddingSpace

KINDS = {"wrong": 1, "uncertain": 1, "right": 2}  # examples of each
TOP = 3  # classes shown with their probabilities
MAX_FEATURES = 12  # shown of a table row


def pick_cases(probs: np.ndarray, y: np.ndarray) -> list[tuple[str, int]]:
    """Select rows of each of `KINDS` without replacement, ties in the order of the rows.

    A kind without enough rows leaves its places to the next: without errors there are two uncertain rows.

    * wrong: the highest confidence among the wrong predictions.
    * uncertain: the lowest confidence.
    * right: the highest confidence among the right predictions, of different classes if there are several.

    Args:
        probs: (N, C).
        y: (N,) true classes.

    Returns:
        Kind and position of each row.
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
    selected: dict[int, str] = {}
    places = 0
    for kind, count in KINDS.items():
        available = [int(i) for i in orders[kind] if i not in selected]
        places += count
        selected |= dict.fromkeys(available[: places - len(selected)], kind)
    return [(kind, i) for i, kind in selected.items()]


def format_features(x: np.ndarray, features: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Format the `MAX_FEATURES` features in which the first row differs most from the others.

    One-hot columns `feature = category` become one feature with the category as value. Numbers are as in the `Split`:
    standardised, in standard deviations from the bank's mean.

    Args:
        x: (M, F), M ≥ 2, the query first.
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
            texts[name] = [f"{value:z.2f}".replace("-", "−") for value in x[:, idx[0]]]
            gap[name] = float(np.abs(x[1:, idx[0]] - x[0, idx[0]]).mean())
        else:
            categories = [features[i].removeprefix(f"{name} = ") for i in idx]
            texts[name] = [categories[int(row.argmax())] if row.any() else "(none)" for row in x[:, idx]]
            gap[name] = float(np.mean([text != texts[name][0] for text in texts[name][1:]]))
    names = sorted(columns, key=lambda name: -gap[name])[:MAX_FEATURES]
    return names, [[texts[name][row] for name in names] for row in range(len(x))]


def _strip(images: np.ndarray) -> Image.Image:
    """Images (M, C, H, W) side by side, in colour with 3 channels."""
    strip = np.concatenate(list(np.moveaxis(images, 1, 3)), axis=1)
    return Image.fromarray(strip[:, :, 0] if strip.shape[2] == 1 else strip[:, :, :3])


@torch.inference_mode()
def gallery(
    split: Split,
    space: EmbeddingSpace,
    head: Head,
    other: Head,
    predictions: Predictions,
    k: int,
    neighbours: int,
    device: str = "cpu",
) -> tuple[dict[str, Any], dict[str, Image.Image]]:
    """Describe the test rows of `pick_cases` under attention, with their neighbours of highest weight.

    Args:
        head: attention, as in `predictions`.
        other: the head whose weights are shown beside, as tuned distance weighting.
        k: the most neighbours of a head.
        neighbours: number shown for each row.

    Returns:
        A JSON object: `images` (bool), `k`, and `cases`, each with kind, row, actual, predicted, top (class and
        probability of the likeliest), null (weight of the null neighbours), neighbours (row, class, weight,
        distance_weight); for an image `picture`, the key of its strip in the second result (the query first, then its
        neighbours in order); for a table row `features`, names, and `values`, texts of the query first, then of each
        neighbour.
    """
    classes = split.classes
    probs_of_all = np.asarray(predictions.probs[predictions.methods.index("attention")])
    picked = pick_cases(probs_of_all, np.asarray(predictions.y))
    rows = np.asarray(predictions.rows)[[i for _, i in picked]]
    other_weights = other(space.around(rows, k, other.needs).to(device))[1].cpu().double().numpy()
    k = min(k, getattr(head, "k", 0) or k)
    probs, weights = (t.cpu().double().numpy() for t in head(space.around(rows, k, head.needs).to(device)))
    ids = space.neighbours.take(rows, k)[0]
    cases, strips = [], {}
    for i, (row, (kind, _)) in enumerate(zip(rows, picked, strict=True)):
        top = np.argsort(-probs[i], kind="stable")[:TOP]
        shown = np.argsort(-weights[i], kind="stable")[:neighbours]
        shown = shown[ids[i, shown] >= 0]
        case: dict[str, Any] = {
            "kind": kind,
            "row": int(row),
            "actual": classes[split.y[row]],
            "predicted": classes[top[0]],
            "top": [{"class": classes[c], "probability": float(probs[i, c])} for c in top],
            "null": max(0.0, 1 - float(weights[i].sum())),
            "neighbours": [
                {
                    "row": int(ids[i, n]),
                    "class": classes[space.embeddings.y[ids[i, n]]],
                    "weight": float(weights[i, n]),
                    "distance_weight": float(other_weights[i, n]),
                }
                for n in shown
            ],
        }
        x = np.asarray(split.x[np.r_[row, ids[i, shown]]])
        if split.is_image:
            case["picture"] = f"{i}-{kind}.png"
            strips[case["picture"]] = _strip(x)
        else:
            case["features"], case["values"] = format_features(x, split.features)
        cases.append(case)
    return {"images": split.is_image, "k": k, "cases": cases}, strips


def save_gallery(cases: dict[str, Any], strips: dict[str, Image.Image], folder: Path) -> None:
    """Write the results of `gallery`, gallery.json and a PNG for each strip."""
    with atomic_folder(folder) as draft:
        write_json(draft / "gallery.json", cases)

        for name, strip in strips.items():
            strip.save(draft / name, optimize=True)

"""Why a query was answered so: test rows of each kind, and the neighbours that decided their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attnknn.core.artifacts import Predictions, Split
from attnknn.core.errors import require
from attnknn.heads.attention import Head
from attnknn.neighbours.space import EmbeddingSpace
from attnknn.nn.objectives import hardness

KINDS = ("wrong", "uncertain", "hard", "right")
TOP = 3  # classes whose probabilities are shown
FEATURES = 12  # of a table's row, at most


def pick_cases(probs: np.ndarray, y: np.ndarray, disagreement: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Positions of at most `count` rows of each kind; ties keep the order of the rows, and no row is picked twice.

    * wrong: the highest confidence among the wrong answers.
    * uncertain: the lowest confidence.
    * hard: the highest share of disagreeing neighbours, above 0; ties by the lowest probability of the true class.
    * right: the highest confidence among the right answers, one of each class before a second one of any.

    Args:
        probs: (N, C). y: (N,) true classes.
        disagreement: (N,), share of each row's neighbours that carry another class than y.
    """
    confidence, right, own = probs.max(1), probs.argmax(1) == y, probs[np.arange(len(y)), y]
    surest = np.argsort(-confidence, kind="stable")
    sure_right = surest[right[surest]]
    turn = np.empty(len(y), dtype=np.int64)  # how many surer right answers of its class there are
    for c in np.unique(y):
        of = sure_right[y[sure_right] == c]
        turn[of] = np.arange(len(of))
    hardest = np.lexsort((own, -disagreement))
    orders = {
        "wrong": surest[~right[surest]],
        "uncertain": np.argsort(confidence, kind="stable"),
        "hard": hardest[disagreement[hardest] > 0],
        "right": sure_right[np.argsort(turn[sure_right], kind="stable")],
    }
    picked: dict[str, np.ndarray] = {}
    free = np.ones(len(y), dtype=bool)
    for kind in KINDS:
        picked[kind] = orders[kind][free[orders[kind]]][:count]
        free[picked[kind]] = False
    return picked


@dataclass(frozen=True)
class Decision:
    """What decided one answer.

    Attributes:
        probs: (C,) class probabilities.
        ids: (n,) the bank rows of highest weight, highest first.
        weights: (n,) their weights in the answer.
        others: (n,) their weights under the head that it is compared with.
        null: weight of the null neighbours, so that it and the weights of all k neighbours sum to 1.
        rest: weight of the neighbours that are not among the n.
    """

    probs: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    others: np.ndarray
    null: float
    rest: float


@torch.inference_mode()
def decisions(
    head: Head, other: Head, retrieved: EmbeddingSpace, rows: np.ndarray, k: int, count: int, device: str = "cpu"
) -> list[Decision]:
    """For each query row the `count` of its k neighbours that weigh most under a head, and their weights under another.

    Raises:
        InputError: k is above the neighbours stored, or a row was never searched for.
    """
    near = retrieved.around(rows, k, {*head.needs, *other.needs}).to(device)
    (probs, weights), compared = head(near), other(near)[1]
    probs, weights, compared = (t.cpu().double().numpy() for t in (probs, weights, compared))
    ids = retrieved.neighbours.take(rows, k)[0]
    made = []
    for i in range(len(rows)):
        first = np.argsort(-weights[i], kind="stable")[:count]
        first = first[ids[i, first] >= 0]
        shown, total = float(weights[i, first].sum()), float(weights[i].sum())
        found = ids[i, first], weights[i, first], compared[i, first]
        made.append(Decision(probs[i], *found, null=max(0.0, 1 - total), rest=max(0.0, total - shown)))
    return made


def readable_values(x: np.ndarray, features: Sequence[str], most: int = FEATURES) -> tuple[list[str], list[list[str]]]:
    """The features in which a table's first row differs most from the others, and every row's values, as texts.

    The one-hot columns `feature = category` become the one feature they were, its value the category. Numbers stay as
    they are in a `Split`: standardised, in standard deviations from the bank's mean.

    Args:
        x: (M, F), the query first.
        features: the F names.
        most: features, at most.

    Returns:
        Their names, and for each row their values in that order.
    """
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(features):
        stem, found, _ = name.rpartition(" = ")
        # A number's own name may hold " = " too.
        one_hot = found and bool(np.isin(x[:, i], (0, 1)).all())
        groups.setdefault(stem if one_hot else name, []).append(i)
    texts: dict[str, list[str]] = {}
    gap: dict[str, float] = {}
    for name, at in groups.items():
        if features[at[0]] == name:
            texts[name] = [f"{value:.2f}".replace("-", "−") for value in x[:, at[0]]]
            gap[name] = float(np.abs(x[1:, at[0]] - x[0, at[0]]).mean()) if len(x) > 1 else 0.0
            continue
        categories = [features[i].removeprefix(f"{name} = ") for i in at]
        texts[name] = [categories[int(row.argmax())] if row.any() else "(none)" for row in x[:, at]]
        gap[name] = float(np.mean([text != texts[name][0] for text in texts[name][1:]])) if len(x) > 1 else 0.0
    names = sorted(groups, key=lambda name: -gap[name])[:most]
    return names, [[texts[name][row] for name in names] for row in range(len(x))]


def _strip(images: np.ndarray) -> np.ndarray:
    """Images (M, C, H, W) side by side: (H, M·W) where grey, (H, M·W, 3) in colour."""
    strip = np.concatenate(list(np.moveaxis(images, 1, 3)), axis=1)
    return strip[:, :, 0] if strip.shape[2] == 1 else strip[:, :, :3]


def gallery(
    split: Split,
    retrieved: EmbeddingSpace,
    head: Head,
    other: Head,
    predictions: Predictions,
    k: int,
    count: int,
    neighbours: int,
    method: str = "attention",
    device: str = "cpu",
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Test rows of each kind of `pick_cases`, with the neighbours that decided their answers.

    Args:
        head: whose answers `predictions` holds under the name `method`.
        other: the head whose weights are shown beside, as tuned distance weighting.
        k: neighbours that both heads may use.
        count: rows of each kind.
        neighbours: shown for each row.

    Returns:
        What a JSON file can hold: `images` (bool), `k`, and `cases`, each with kind, row, actual, predicted,
        disagreement (share of the k neighbours of another class), top (class and probability of the likeliest), null,
        rest, neighbours (row, class, weight, distance_weight); of an image `picture`, the name of the second result's
        strip (the query first, then its neighbours in order); of a table's row `features`, names, and `values`, texts
        of the query first, then of each neighbour.
        And the strips: uint8, (H, W·(1 + n)) or with 3 colours at the end.
    """
    require(method in predictions.methods, f"{method}: no such method; there are {', '.join(predictions.methods)}")
    rows, y = np.asarray(predictions.rows), np.asarray(predictions.y)
    labels = retrieved.around(rows, k).labels
    disagree = hardness(labels, torch.from_numpy(np.array(y))).numpy()
    picked = pick_cases(np.asarray(predictions.probs[predictions.methods.index(method)]), y, disagree, count)
    places = np.concatenate(list(picked.values()))
    kinds = [f"{kind}-{i}" for kind, found in picked.items() for i in range(len(found))]
    made = decisions(head, other, retrieved, rows[places], k, neighbours, device)
    cases, strips = [], {}
    for name, at, d in zip(kinds, places, made, strict=True):
        top = np.argsort(-d.probs, kind="stable")[:TOP]
        shown = zip(d.ids, d.weights, d.others, strict=True)
        case: dict[str, Any] = {
            "kind": name.partition("-")[0],
            "row": int(rows[at]),
            "actual": split.classes[y[at]],
            "predicted": split.classes[top[0]],
            "disagreement": float(disagree[at]),
            "top": [{"class": split.classes[c], "probability": float(d.probs[c])} for c in top],
            "null": d.null,
            "rest": d.rest,
            "neighbours": [
                {
                    "row": int(i),
                    "class": split.classes[retrieved.embeddings.y[i]],
                    "weight": float(w),
                    "distance_weight": float(o),
                }
                for i, w, o in shown
            ],
        }
        x = np.asarray(split.x[np.r_[rows[at], d.ids]])
        if split.is_image:
            case["picture"] = f"{name}.png"
            strips[case["picture"]] = _strip(x)
        else:
            case["features"], case["values"] = readable_values(x, split.features)
        cases.append(case)
    return {"images": split.is_image, "k": k, "cases": cases}, strips

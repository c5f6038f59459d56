"""Explanations as records for the command line and the page."""

from typing import Any

import numpy as np

from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.classifier.explanation import Explanation
from attnknn.classifier.predict import FAR

_CLASSES = 4  # listed of the null neighbours


def to_records(c: AttnKNNClassifier, explanation: Explanation, shown: int, row_id: int | None) -> list[dict[str, Any]]:
    """Convert an explanation to one JSON-serialisable dict a query.

    Args:
        c: the fitted classifier.
        explanation: from `AttnKNNClassifier.explain` or `explain_rows`.
        shown: number of neighbours to list, largest weight first; after these the nearest, if it is not among them.
        row_id: id of a neighbour to list in any case, last.
    """
    percentiles, usual = explanation.distance_percentiles, c.usual_distances_
    sets = c.sets_from_proba(explanation.probabilities, 0.1, percentiles)
    classes = c.classes_.tolist()
    answers = []
    for i, probs in enumerate(explanation.probabilities):
        ids, weights, distances = explanation.ids[i], explanation.weights[i], explanation.distances[i]
        order = [j for j in np.argsort(-weights, kind="stable") if ids[j] >= 0]
        listed = order[:shown] + [j for j in order[shown:] if j == 0 or ids[j] == row_id]
        rest = [j for j in order if j not in listed]
        labels, given_labels = explanation.labels[i], explanation.given_labels[i]
        columns = (ids, labels, given_labels, distances, weights, explanation.shares[i], explanation.added[i])
        rows = zip(*(column[listed].tolist() for column in columns), strict=True)
        names = ("id", "label", "given_label", "distance", "weight", "share", "added")
        nearest = {
            "distance": float(distances[0]),
            "usual": float(np.median(usual)) if len(usual) else 0.0,
            "percentile": float(percentiles[i]),
            "far": bool(percentiles[i] >= FAR),
        }
        answers.append(
            {
                "prediction": classes[probs.argmax()],
                "confidence": float(probs.max()),
                "abstains": bool(probs.max() < c.abstain),
                "set": [classes[j] for j in np.flatnonzero(sets[i])],
                "probabilities": [
                    {"label": classes[j], "p": float(probs[j])} for j in np.argsort(-probs, kind="stable")
                ],
                "nearest": nearest if len(usual) else None,
                "novelty": float(p_value) if np.isfinite(p_value := explanation.novelty[i]) else None,
                "neighbours": [dict(zip(names, row, strict=True)) for row in rows],
                "rest": {"count": len(rest), "weight": float(weights[rest].sum())},
                "null": {
                    "of": explanation.null_scores,
                    "weight": float(explanation.null[i].sum()),
                    "share": float(explanation.null_share[i]),
                    "classes": [
                        {"label": classes[j], "weight": float(explanation.null[i, j])}
                        for j in np.argsort(-explanation.null[i], kind="stable")[:_CLASSES]
                    ],
                },
            }
        )
    return answers

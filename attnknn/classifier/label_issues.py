"""`find_label_issues`: which labels of a dataset are probably wrong, without a fitted classifier."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from attnknn.classifier.audit import audit_memory
from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.core.device import resolve_device
from attnknn.core.errors import require

PARAMETERS = ("n_neighbors", "metric", "index", "device", "n_jobs", "random_state")


def find_label_issues(X: Any, y: Any, pred_probs: Any = None, **params: Any) -> pd.DataFrame:
    """Find labels that are probably wrong.

    Every row is judged by its neighbours and a logistic regression, which do not read its own label, through a
    transition matrix of label noise that is estimated from the same rows; see `AttnKNNClassifier(label_noise="auto")`.

    Args:
        X: (N, D) real numbers on one scale, such as embeddings; of an encoder that was not trained on these labels, or
            that has not memorised them.
        y: (N,) labels.
        pred_probs: (N, C) out-of-sample probabilities of the classes, sorted, by any classifier, in place of ours.
        params: those of `AttnKNNClassifier` in `PARAMETERS`.

    Returns:
        A line for each row of X, in its order and with the index of a data frame: is_label_issue; label_quality, the
        probability that the label is right; given_label; predicted_label, the most probable one; supported_by and
        contradicted_by, the positions of the nearest row with the same and with another label, −1 if none is near;
        n_identical, the number of other rows with the same values, and n_conflicting, of those with another label;
        nearest_distance, to the nearest other row, in units of the median over rows: far below 1 for near duplicates.
        Sort by label_quality to review them. `attrs["evident"]` tells whether label noise is, see
        `transition.share_of_wrong`. If not, as where classes overlap or rows are few, one share of wrong labels is
        estimated for all classes, and a tenth of the labels is assumed to be confused with a similar class, so that the
        number of wrong ones is a guess. So many rows, of the least quality, are issues then, though their labels may be
        more probably right than wrong.

    Raises:
        ValueError: a single class, values that are not finite, an invalid parameter, or probabilities that do not fit.
    """
    unused = params.keys() - PARAMETERS
    require(not unused, f"{', '.join(sorted(unused))}: no parameter here; {', '.join(PARAMETERS)} are")
    classifier = AttnKNNClassifier(**params)
    classifier._validate_params()
    with classifier._threads():
        memory = classifier._build_memory(X, y, None, 3)
        classes = classifier.classes_
        if pred_probs is not None:
            named = (
                "pred_probs: a data frame; give its values, columns in the order of the sorted classes, rows as in X"
            )
            require(not hasattr(pred_probs, "columns"), named)
            require(not np.iscomplexobj(pred_probs), "pred_probs: complex numbers; give probabilities")
            pred_probs = np.asarray(pred_probs, dtype=np.float64)
            shape = (len(memory), len(classes))
            require(pred_probs.shape == shape, f"pred_probs: of shape {pred_probs.shape}; give {shape}")
            valid = bool((pred_probs >= 0).all()) and np.allclose(pred_probs.sum(1), 1, atol=1e-4)
            require(valid, "pred_probs: rows must be probabilities that sum to 1")
        seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
        device = resolve_device(classifier.device)
        frame = audit_memory(memory, classes, classifier.get_params(), seed, device, pred_probs)
    return frame.set_index(X.index) if hasattr(X, "columns") and hasattr(X, "index") else frame

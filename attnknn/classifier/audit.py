"""Which labels of rows are probably wrong: the posterior probability of each given label."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from attnknn.classifier.fitting import estimate_noise
from attnknn.classifier.held_out import fold_parts, held_out_space
from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.core.artifacts import BANK
from attnknn.core.device import resolve_device
from attnknn.core.duplicates import first_identical, split_groups
from attnknn.core.errors import require
from attnknn.heads.label_noise import true_class_probs
from attnknn.heads.transition import count_labels, expect_labels, expect_uniform, share_of_wrong, sharpen, too_few_rows

# Shares of wrong labels that are assumed beside T: confused with a class that the row resembles, beside a whole T and
# otherwise, and drawn from all other classes alike. Of clean rows .4 to 7 % are flagged.
CONFUSED, UNSEEN, DRAWN = 0.01, 0.1, 0.001
_TINY = 1e-12


def label_probs(
    memory: Memory, params: dict[str, Any], seed: int, device: str
) -> tuple[Float[np.ndarray, "N C"], Float[np.ndarray, "C C"], bool]:
    """Probabilities of the true class of every row of a memory that was just built, the transition matrix T, and
    whether label noise is evident: if not, `expect_uniform` is taken. A row's own label is not read.

    Args:
        params: of `AttnKNNClassifier`.
    """
    z, k = memory.bank.z, int(params["n_neighbors"])
    parts = fold_parts(memory.y, seed, first=split_groups(first_identical(z), z))
    spaces = [held_out_space(memory, k, part) for part in parts]
    everything = held_out_space(memory, k, np.full(len(memory), BANK, dtype=np.int8))
    n_classes = len(memory.sums)
    if not too_few_rows(len(memory), n_classes):
        noise = estimate_noise(spaces, params, seed, device)
        if noise.evident:
            return true_class_probs(everything, noise, device), noise.transition, True
    noise = estimate_noise(spaces, params, seed, device, transition=np.eye(n_classes))
    probs = true_class_probs(everything, noise, device)
    transition, sharpness = expect_uniform(probs, memory.y)
    return sharpen(probs, sharpness), transition, False


def estimated_probs(
    probs: Float[np.ndarray, "N C"], y: Int[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "N C"], Float[np.ndarray, "C C"], bool]:
    """As `label_probs`, from out-of-sample probabilities of any classifier."""
    transition, sharpness = expect_labels(probs, y, count_labels(probs, y))
    _, evident = share_of_wrong(probs, y, transition, sharpness)
    if not evident:
        transition, sharpness = expect_uniform(probs, y)
    return sharpen(probs, sharpness), transition, evident


def issues(
    probs: Float[np.ndarray, "N C"],
    y: Int[np.ndarray, " N"],
    transition: Float[np.ndarray, "C C"],
    classes: np.ndarray,
    evident: bool,
) -> pd.DataFrame:
    """A line for each row: is_label_issue, label_quality, given_label, predicted_label; attrs["evident"].

    label_quality is P(given label is right | row, label); predicted_label the most probable true class. The true class
    c of a row of label g has probability ∝ p_c·P(g | c, row), where P(g | c, row) is a mixture of T[c, g], of
    p_g / (1 − p_c), as of an annotator who takes c for the next probable class, and of 1 / (C − 1). Issues are labels
    that are more probably wrong than right; where label noise is not `evident`, as many as are expected to be wrong.
    """
    n_classes, confused = len(transition), CONFUSED if evident else UNSEEN
    probs = np.maximum(probs, _TINY)
    own = np.arange(len(y)), y
    wrong = confused * probs[own][:, None] / np.maximum(1 - probs, _TINY) + DRAWN / (n_classes - 1)
    wrong[own] = 0
    joint = probs * ((1 - confused - DRAWN) * transition[:, y].T + wrong)
    true = joint / joint.sum(1, keepdims=True)
    predicted, quality = true.argmax(1), true[own]
    flagged = predicted != y
    if not evident:  # then few are more probably wrong than right, even of many wrong ones
        flagged = np.zeros(len(y), dtype=bool)
        flagged[np.argsort(quality, kind="stable")[: round((1 - quality).sum())]] = True
    frame = pd.DataFrame(
        {
            "is_label_issue": flagged,
            "label_quality": quality,
            "given_label": classes[y],
            "predicted_label": classes[predicted],
        }
    )
    frame.attrs["evident"] = evident
    return frame


def nearest_of(
    labels: Int[np.ndarray, "N K"], ids: Int[np.ndarray, "N K"], mask: Bool[np.ndarray, "N K"]
) -> np.ndarray:
    """Id (N,) of the nearest neighbour in a mask, −1 without one."""
    mask = mask & (labels >= 0)
    first = mask.argmax(1)
    return np.where(mask.any(1), ids[np.arange(len(ids)), first], -1).astype(np.int64)


def with_neighbours(
    frame: pd.DataFrame, y: Int[np.ndarray, " N"], ids: Int[np.ndarray, "N K"], labels: Int[np.ndarray, "N K"]
) -> pd.DataFrame:
    """Add supported_by and contradicted_by: ids of the nearest row with the given label and with another, −1: none."""
    same = labels == y[:, None]
    return frame.assign(supported_by=nearest_of(labels, ids, same), contradicted_by=nearest_of(labels, ids, ~same))


def with_duplicates(
    frame: pd.DataFrame, z: Float[np.ndarray, "N D"], y: Int[np.ndarray, " N"], distances: Float[np.ndarray, " N"]
) -> pd.DataFrame:
    """Add n_identical, the number of identical rows, n_conflicting, of those with another label, and nearest_distance.

    Args:
        distances: to the nearest row; `nearest_distance` is in units of the median of those that are not 0.
    """
    first = first_identical(z)
    identical = np.bincount(first, minlength=len(z))[first]
    _, pair, counts = np.unique(np.stack([first, y]), axis=1, return_inverse=True, return_counts=True)
    unit = np.median(distances[distances > 0]) if distances.any() else 1.0
    conflicting = identical - counts[pair.ravel()]
    return frame.assign(n_identical=identical - 1, n_conflicting=conflicting, nearest_distance=distances / unit)


def summarise_label_issues(
    frame: pd.DataFrame, resamples: int = 2000, confidence: float = 0.95, seed: int = 0
) -> dict[str, Any]:
    """What the qualities of `find_label_issues` say together.

    Returns:
        rows, flagged (rows with is_label_issue); wrong: expected number of wrong labels, wrong_low and wrong_high: its
        interval, over rows and over which labels are wrong; pairs: a data frame of given and predicted label with the
        expected number of such wrong labels; classes: one of each given label, with its rows and expected wrong ones.
    """
    wrong = 1 - frame["label_quality"].to_numpy(np.float64)
    require(len(wrong) > 0, "label issues: no rows")
    rng, n = np.random.default_rng(seed), len(wrong)
    drawn = [rng.random(n) < wrong[rng.integers(n, size=n)] for _ in range(resamples)]
    low, high = np.quantile([rows.sum() for rows in drawn], [(1 - confidence) / 2, (1 + confidence) / 2])
    other = frame["is_label_issue"] & (frame["given_label"] != frame["predicted_label"])
    pairs = (
        frame[other]
        .assign(expected=wrong[other])
        .groupby(["given_label", "predicted_label"])["expected"]
        .agg(["size", "sum"])
        .rename(columns={"size": "flagged", "sum": "expected_wrong"})
        .sort_values("expected_wrong", ascending=False)
        .reset_index()
    )
    by_class = frame.assign(expected=wrong).groupby("given_label")["expected"].agg(["size", "sum"])
    classes = by_class.rename(columns={"size": "rows", "sum": "expected_wrong"}).reset_index()
    counts = {"rows": n, "flagged": int(frame["is_label_issue"].sum()), "wrong": float(wrong.sum())}
    return {**counts, "wrong_low": float(low), "wrong_high": float(high), "pairs": pairs, "classes": classes}


def expected_precision(frame: pd.DataFrame) -> Float[np.ndarray, " N"]:
    """Expected share of wrong labels among the first n rows by label_quality, for n = 1 … N."""
    wrong = 1 - np.sort(frame["label_quality"].to_numpy(np.float64))
    return wrong.cumsum() / np.arange(1, len(wrong) + 1)


def audit_memory(
    memory: Memory, classes: np.ndarray, params: dict[str, Any], seed: int, device: str, probs: Any = None
) -> pd.DataFrame:
    """`find_label_issues` of the rows of a memory that was just built, by position.

    Args:
        probs: (N, C) out-of-sample probabilities of another classifier, to be taken in place of ours.
    """
    judged = label_probs(memory, params, seed, device) if probs is None else estimated_probs(probs, memory.y)
    frame = issues(judged[0], memory.y, judged[1], classes, judged[2])
    ids = memory.neighbour_ids
    frame = with_neighbours(frame, memory.y, ids, np.where(ids >= 0, memory.y[ids], -1))
    distances = np.sqrt(np.maximum(-memory.neighbour_sims[:, 0].astype(np.float64), 0))
    return with_duplicates(frame, memory.bank.z, memory.y, distances)


class AuditMixin:
    """Mixin with `audit`."""

    n_neighbors: int
    device: str
    random_state: Any
    classes_: np.ndarray
    memory_: BaseMemory
    transition_: np.ndarray | None
    get_params: Callable[[], dict[str, Any]]
    predict_proba: Callable[[Any], np.ndarray]
    _queries: Callable[[Any], np.ndarray]
    _encode_labels: Callable[[str, np.ndarray], np.ndarray]
    _reading: Callable[[], AbstractContextManager[None]]
    _threads: Callable[[], AbstractContextManager[None]]

    def audit(self, X: Any = None, y: Any = None) -> pd.DataFrame:
        """Find labels that are probably wrong, see `find_label_issues`: of the memory's rows, or of new ones.

        Args:
            X, y: (B, D) new rows and their labels, of classes of the model, which the memory judges; None for the rows
                of the memory, with the labels given to `fit` and `partial_fit`, in the order of their ids. Rows of the
                memory given as X would support themselves.

        Returns:
            As `find_label_issues`; the index has the ids of the memory's rows, or is that of a data frame X, and
            supported_by and contradicted_by are ids. New rows have no n_identical, n_conflicting and nearest_distance.
        """
        require((X is None) == (y is None), "X and y: give both, or neither for the rows of the memory")
        check_is_fitted(self)
        require(isinstance(self.memory_, Memory), "audit: the rows are in a table; fit without storage")
        with self._reading(), self._threads():
            memory, device = cast(Memory, self.memory_), resolve_device(self.device)
            few = f"audit: a memory of {len(memory)} rows; at least three are needed to judge each by others"
            require(X is not None or len(memory) > 2, few)
            if X is not None:
                z, labels = self._queries(X), column_or_1d(y, warn=False)
                require(not any(label is None for label in labels), "y: None is no label; leave the row out")
                own = self._encode_labels("y", labels)
                require(len(z) == len(own), f"y: {len(own)} labels for {len(z)} rows")
                evident = self.transition_ is not None
                transition = np.eye(len(self.classes_)) if self.transition_ is None else self.transition_
                frame = issues(self.predict_proba(X), own, transition, self.classes_, evident)
                nearest = memory.nearest(z, min(int(self.n_neighbors), len(memory)), device=device)
                frame = with_neighbours(frame, own, nearest.ids, nearest.given_y)
                return frame.set_index(X.index) if hasattr(X, "columns") and hasattr(X, "index") else frame
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            rows = Memory.build(memory.vectors(), memory.given_y, memory.weight, len(self.classes_))
            frame = audit_memory(rows, self.classes_, self.get_params(), seed, device)
        for name in ("supported_by", "contradicted_by"):
            frame[name] = np.where(frame[name] >= 0, memory.ids[frame[name]], -1)
        return frame.set_index(memory.ids)

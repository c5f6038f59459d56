"""Check the types, shapes, ranges and finite values of what a saved classifier holds."""

import math
from typing import Any

import numpy as np

from attnknn.classifier.linear import LinearClassifier
from attnknn.classifier.nearest import BaseMemory
from attnknn.core.artifacts import check_array
from attnknn.core.errors import require
from attnknn.heads.label_noise import DOUBT
from attnknn.heads.transition import check_transition
from attnknn.index.bank import Bank
from attnknn.index.faiss_index import similarities
from attnknn.index.validation import check_vectors

MAX_ID = 2**62  # ids of rows to be added stay far from the end of int64
# Arrays of a memory: name on disk → attribute.
_NAMES = ("ids", "y", "weight", "near_ids", "near_sims", "sums")
MEMORY_ARRAYS = {name: name.replace("near_", "neighbour_") for name in _NAMES}


def check_memory(arrays: dict[str, np.ndarray], bank: Bank, next_id: Any) -> None:
    """Check the types, shapes, ranges and finite values of the arrays of a memory."""
    for name, dtype, ndim in (("ids", "int64", 1), ("y", "int64", 1), ("weight", "float32", 1), ("sums", "float64", 2)):
        check_array(name, arrays[name], dtype, ndim)
    check_array("neighbour_ids", arrays["neighbour_ids"], "int32 or int64", 2)
    z = check_vectors("vectors", bank.z)
    ids, y, weight, neighbours, sims, sums = (arrays[attribute] for attribute in MEMORY_ARRAYS.values())
    order = np.argsort(bank.ids, kind="stable")[len(bank.ids) - len(ids) :]
    rising = len(ids) > 1 and bool((np.diff(ids) > 0).all())
    in_range = rising and type(next_id) is int and 0 <= ids[0] <= ids[-1] < next_id <= MAX_ID
    require(in_range and len(bank) == len(ids) and np.array_equal(bank.ids[order], ids), "ids: not those of the index")
    require(len(y) == len(ids) and 0 <= y.min() <= y.max() < len(sums), "y: not a class number of each row")
    require(len(weight) == len(ids) and weight.min() > 0, "weight: not a number above 0 of each row")
    require(sums.shape[1] == z.shape[1], f"sums: {sums.shape[1]} dimensions; the index has {z.shape[1]}")
    fits = len(neighbours) == len(ids) and neighbours.shape[1] > 0
    fits = fits and neighbours.shape == sims.shape and sims.dtype == np.float32
    fits = fits and bool((np.isin(neighbours, ids) | (neighbours == -1)).all())
    fits = fits and bool(np.where(neighbours >= 0, np.isfinite(sims), sims == -np.inf).all())
    require(fits, "neighbours: not rows of the memory with their similarities")
    nearest = similarities(z[order], z[order], np.searchsorted(ids, neighbours[:, :1]), bank.metric)
    same = np.isclose(nearest, sims[:, :1], rtol=1e-3) | (neighbours[:, :1] < 0)
    require(bool(same.all()), "neighbours: other similarities than the vectors have")


def check_linear(strength: Any, linear: LinearClassifier, shape: tuple[int, ...]) -> None:
    """Check the types and shapes of the linear classifier of a memory of `shape` (C, D)."""
    require(type(strength) is float and 0 < strength < math.inf, "strength: not a number above 0")
    check_array("coef", linear.coef, "float64", 2)
    check_array("intercept", linear.intercept, "float64", 1)
    check_array("log_odds", linear.log_odds, "float64", 1)
    fits = linear.coef.shape == shape and len(linear.intercept) == shape[0] and len(linear.log_odds) in (0, shape[0])
    require(fits, f"coef, intercept: not of {shape[0]} classes and {shape[1]} dimensions")


def check_classifier(
    memory: BaseMemory, values: dict[str, Any], arrays: dict[str, np.ndarray], held_out: np.ndarray
) -> None:
    """Check the types, shapes and ranges of what else a saved classifier holds: conformity scores `held_out` (M,)."""
    n_classes, dim = memory.sums.shape
    for name, size in (("origin", dim), ("scale", n_classes), ("bias", n_classes)):
        check_array(name, arrays[name], "float64", 1)
        require(len(arrays[name]) == size, f"{name}: {len(arrays[name])} values; expected {size}")
    labels, names, fitted = values["classes"], values["feature_names"], values["fitted"]
    classes = np.unique(np.array(labels, dtype=np.dtype(values["classes_dtype"])))
    require(classes.tolist() == labels and len(labels) == n_classes, f"classes: not {n_classes} sorted labels")
    named = isinstance(names, list) and len(names) in (0, dim) and all(type(name) is str for name in names)
    require(named, f"feature_names: not {dim} names")
    require(type(fitted["n_iter_"]) is int and fitted["n_features_in_"] == dim, "n_iter_ or n_features_in_: wrong")
    require(fitted["_unit"] > 0 and fitted["_usual_weight"] > 0, "scale of rows or weights: not above 0")
    if "transition" in arrays:
        check_transition(arrays["transition"], n_classes)
    usual = arrays.get("usual_distances", held_out[:0])
    for name, array in (("held_out", held_out), ("usual_distances", usual)):
        check_array(name, array, "float64", 1)
    require(bool((np.diff(usual, prepend=0) >= 0).all()), "usual_distances: negative, or not ascending")
    positive = values["params"]["calibration"] == "vector" or float(arrays["scale"].min()) > 0
    require(positive, "scale: not above 0")
    n = len(held_out)
    require(round(1 / fitted["_doubt"]) in (n + 1, round(1 / DOUBT)), f"held_out: {n} scores, not as many as fitted")

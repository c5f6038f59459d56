"""Random changes of bytes, of nested values and of arrays."""

import copy
import math
from random import Random
from typing import Any

import numpy as np

TEXTS = [
    "", " ", "nan", "inf", "-1e400", "1.7e308", "-1.7e308", "1e20", "1,000", "0x1F", "007", "2024-01-31", "true", "NA",
    "٣", "é", "e\u0301", "\ufeff", "\u202e", "\r", "a\nb", "a\0b", '"', "'", ",", ";", "=1+1", "#", "../..", "/", "-",
    "<b>", "%s{0}", "[bold]", "label", "x" * 3000, "9" * 5000,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 2**31, 2**63, -(2**64), 10**400, 1e20, 1.7e308, math.nan, math.inf, [],
    {}, [[]], [None], {"": None}, [0] * 1000, *TEXTS,
]  # fmt: skip
_BYTES = [b"\0", b"\xff", b"\r", b"\n", b'"', b",", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"(" * 300, b"9" * 5000]
_DTYPES = ["f2", "f4", ">f8", "g", "i1", "u1", "i8", "u8", "?", "c16", "U9", "S9", "M8[s]", "O"]


def damage(rng: Random, data: bytes) -> bytes:
    """Truncate, remove, repeat, replace or insert bytes."""
    for _ in range(rng.choice([1, 1, 2, 6])):
        i, j = sorted(rng.choices(range(len(data) + 1), k=2))
        j = min(j, i + 8) if rng.random() < 0.5 else j
        middle = [b"", data[i:j] * 2, rng.randbytes(min(j - i, 64)), bytes(j - i), rng.choice(_BYTES) + data[i:j]]
        data = data[:i] if rng.random() < 0.2 else data[:i] + rng.choice(middle) + data[j:]
    return data


def replace_value(rng: Random, tree: Any) -> Any:
    """Copy nested lists and dicts with a value replaced, removed or added."""
    tree = node = copy.deepcopy(tree)
    if not isinstance(node, dict | list) or not node:
        return rng.choice(VALUES)
    while True:
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        value, change = node[key], rng.random()
        if isinstance(value, dict | list) and value and change < 0.7:
            node = value
            continue
        if change < 0.1:
            del node[key]
        elif change < 0.2 and isinstance(node, dict):
            node[rng.choice(TEXTS)] = rng.choice(VALUES)
        elif change < 0.5 and type(value) in (int, float):
            node[key] = rng.choice([value + 1, value - 1, -value, value * 1000, str(value), [value], float(value)])
        else:
            node[key] = rng.choice(VALUES)
        return tree


def damage_array(rng: Random, array: np.ndarray) -> np.ndarray:
    """Change values, the shape or the dtype."""
    array, (n, d) = np.array(array), (rng.choice([0, 1, 2, 3, 70]), rng.choice([0, 1, 3, 5, 9]))
    other = [np.zeros((n, d)), np.ones((d, n)), np.full((n, d), 1e19), np.zeros(n), np.zeros((n, d, 1, 1))]
    change = rng.randrange(4) if array.ndim else 3
    with np.errstate(all="ignore"):
        if change == 0 and array.size and array.dtype.kind in "fiu":
            value = np.array(rng.choice([np.nan, np.inf, -np.inf, 1e20, -1e300, 1e-320, -1, 0, 2**31, 2**62, 1e6]))
            step = rng.choice([1, 7, array.size])
            array.reshape(-1)[rng.randrange(array.size) :: step] = value.astype(array.dtype)
            return array
        if change == 1:
            ends = [array[:0], array[..., :0], array[:1], array[:-1], array[..., :-1], array[::-1]]
            return np.array(rng.choice([array.ravel(), array[..., None], array.T, np.repeat(array, 2, 0), *ends]))
        if change == 2 and array.dtype.kind not in "OUSM":
            return array.astype(rng.choice(_DTYPES))
    return rng.choice(other)

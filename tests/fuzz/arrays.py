"""Files .npy and .npz: headers, dtypes, shapes, values and bytes; of vectors and of labels."""

import io
from random import Random

import numpy as np

from tests.fuzz.judge import Judge
from tests.fuzz.mutate import damage, damage_array
from tests.fuzz.runner import DIM

_HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (20, 5)}"
_REPLACED = {
    "(20, 5)": [f"({n}, 5)" for n in ("10**9", "9223372036854775807", "9" * 20, "100000000000", "-1", "20.0", "20L")],
    "(20, 5)}": ["20}", "()}", "(" * 900, "(5, 20)", "(True, 100)"],
    "'<f8'": ["'|O'", "[('a', '<f8')]", "('<f8', (5,))", "'<f999999999999'", "'x'", "3", "'>f8'", "'<U999999999'"],
    "False": ["3", "True"],
    _HEADER: ["[]", "", "(", "'", "\\", "é" * 9, "__import__('os')", "9" * 5000, "\t x\n  y\n z", "{'descr': '<f8'}"],
}


def npy(array: np.ndarray) -> bytes:
    """A file of an array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_bytes(rng: Random, array: np.ndarray) -> bytes:
    """A file of an array, more or less broken."""
    for _ in range(rng.choice([0, 1, 1, 2])):
        array = damage_array(rng, array)
    data, change = npy(array), rng.randrange(6)
    if change == 0:
        old = rng.choice(list(_REPLACED))
        header = _HEADER.replace(old, rng.choice(_REPLACED[old])).encode("latin-1") + b"\n"
        version = rng.choice([b"\1\0"] * 5 + [b"\2\0", b"\3\0", b"\x09\0"])
        length = abs(len(header) + rng.choice([0, 0, 0, -3, 900])).to_bytes(2 if version == b"\1\0" else 4, "little")
        return b"\x93NUMPY" + version + length + header + data[128:]
    if change == 1:
        file = io.BytesIO()
        np.savez(file, **dict.fromkeys(rng.choice(["", "x", "xy"]), array))
        data = file.getvalue()
    return damage(rng, data) if rng.random() < 0.2 else data


def run(rng: Random, judge: Judge) -> None:
    """Give vectors or labels to a command."""
    path, labels, model = judge.folder / "x.npy", judge.folder / "y.npy", judge.out / "m"
    y = np.arange(20) % 2
    X = np.random.default_rng(rng.getrandbits(32)).normal(size=(20, DIM)) + y[:, None]
    words = rng.choice([np.array(["no", "yes"])[y], y, y > 0, y.astype(np.int8)])
    action = rng.choice(["fit", "fit", "predict", "predict", "explain", "add"])
    broken = rng.random() < 0.7 or action in ("predict", "explain")
    path.write_bytes(npy_bytes(rng, X) if broken else npy(X))
    labels.write_bytes(npy(words) if broken else npy_bytes(rng, words))
    if action == "fit":
        weights, metric = rng.choice(["distance", "uniform", "attention"]), rng.choice(["l2", "cosine"])
        flags = ("--rows", labels, "-o", model, "-k", 5, "--weights", weights, "--metric", metric)
    else:
        model = judge.model(rng.choice(["vectors", "beside"]))
        flags = rng.choice([["--label", "yes"], ["--label", "1"], ["--rows", labels]])
    if action in ("fit", "add"):
        return judge.change(model, action, *([model] if action == "add" else []), path, *flags)
    flags = rng.choice([["--probabilities"], ["--probabilities", "--keep-going"]]) if action == "predict" else []
    judge.answers(judge.command(action, model, path, "--json", *flags))

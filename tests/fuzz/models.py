"""Saved models: files removed or damaged; or JSON values and arrays replaced, with checksums that fit."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.fuzz.judge import Judge
from tests.fuzz.mutate import damage, damage_array, replace_value
from tests.fuzz.pictures import png
from tests.fuzz.runner import DIM, MODELS
from tests.synthetic_models import sign


def _change(rng: Random, path: Path) -> None:
    """Replace values of a file of the kind that it is, or damage its bytes."""
    data, kind = path.read_bytes(), path.suffix if rng.random() < 0.85 else ""
    if kind == ".json":
        path.write_text(json.dumps(replace_value(rng, json.loads(data))))
    elif kind == ".npy":
        np.save(path, damage_array(rng, np.load(path)))
    elif kind == ".safetensors":
        arrays = load_file(path)
        name = rng.choice(sorted(arrays))
        array = damage_array(rng, arrays.pop(name))
        if array.dtype.char in "bBhHiIlLefd?":  # others cannot be written: leave the array out
            arrays[name] = array
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    else:
        path.write_bytes(damage(rng, data))


def run(rng: Random, judge: Judge) -> None:
    """Change files of a model, then use it."""
    kind = rng.choice(MODELS)
    model = judge.model(kind)
    for path in rng.sample(sorted(path for path in model.rglob("*") if path.is_file()), rng.choice([1, 1, 2])):
        if rng.random() < 0.95:
            _change(rng, path)
        else:
            path.unlink()
            path.mkdir() if rng.random() < 0.5 else None
    if rng.random() < 0.85:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):  # nothing there to sign
            sign(model)
    source = judge.folder / {"table": "a.csv", "pictures": "a.png"}.get(kind, "a.npy")
    if kind in ("table", "pictures"):
        source.write_bytes(b"size,weight,<b>colour</b>\n0.9,9.5,red\n" if kind == "table" else png(rng))
    else:
        np.save(source, np.ones((2, DIM)))
    action = rng.choice(["predict", "predict", "explain", "add", "forget", "load"])
    if action == "load":
        judge.loads(model)
    elif action in ("add", "forget"):
        label = {"table": "apple", "pictures": "left", "vectors": "1", "beside": "yes"}[kind]
        judge.change(model, action, model, *((source, "--label", label) if action == "add" else (3, 4)))
    else:
        flags = ["--probabilities", "--alpha", 0.1] if action == "predict" else ["--first", 1]
        judge.answers(judge.command(action, model, source, "--json", *flags))

"""Labels of a model's type from texts."""

from collections.abc import Sequence

import numpy as np

from attnknn.core.errors import InputError, require

_LABELS = {"U": str, "O": str, "i": int, "u": int, "f": float}  # a label of a type of array from a text


def parse_labels(texts: Sequence[str], known: np.ndarray, new_classes: bool) -> np.ndarray:
    """Labels of the type of known classes from strings; InputError if one is none, unless new ones are allowed."""
    classes, kind = {str(label): label for label in known}, known.dtype.kind
    unknown = sorted({text for text in texts if text not in classes})
    listed = ", ".join(list(classes)[:20]) + (", …" if len(classes) > 20 else "")
    names = ", ".join(unknown[:5])
    require(new_classes or not unknown, f"label {names}: not a class of this model; its classes are {listed}")
    require("" not in unknown, "label: empty; give the new class a name")
    try:
        parsed = {text: _LABELS[kind](text) for text in unknown}
    except (KeyError, ValueError):
        raise InputError(f"label {names}: of another type than the classes of this model, {listed}") from None
    for text, label in parsed.items():  # 02 may be meant as another class than 2
        finite = not isinstance(label, float) or np.isfinite(label)
        require(bool(finite), f"label {text}: not a finite number; give the new class another")
        same = [name for name in classes if _same_number(name, text)]
        require(str(label) == text and not same, f"label {text}: write {same[0] if same else label} if this is meant")
    classes |= parsed
    return np.array([classes[text] for text in texts], dtype=None if unknown else known.dtype)


def _same_number(a: str, b: str) -> bool:
    try:
        return float(a) == float(b)
    except ValueError:
        return False

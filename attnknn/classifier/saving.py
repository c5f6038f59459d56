"""Save and load a classifier; see `persistence`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from attnknn.classifier import persistence
from attnknn.classifier.checks import check_classifier
from attnknn.classifier.locking import read_consistently
from attnknn.classifier.memory import Memory
from attnknn.classifier.nearest import BaseMemory
from attnknn.classifier.novelty import Novelty
from attnknn.classifier.persistence import AnyHead, head_from_arrays, head_to_arrays
from attnknn.classifier.predictor import Predictor
from attnknn.core.errors import require
from attnknn.evaluation.conformal import true_class_scores

# Fitted scalars: name on disk → attribute.
_FITTED = {
    "n_features_in_": "n_features_in_",
    "n_iter_": "n_iter_",
    "_unit": "_unit",
    "_usual_weight": "_mean_weight",
    "_doubt": "_smoothing",
}


class SaveMixin(BaseEstimator):
    """Mixin with `save`, `load` and pickling."""

    classes_: np.ndarray
    new_classes_: np.ndarray
    memory_: BaseMemory
    head_: AnyHead
    calibration_: tuple[np.ndarray, np.ndarray]
    transition_: np.ndarray | None
    usual_distances_: np.ndarray
    storage: str | Path | None
    _origin: np.ndarray
    _held_out: np.ndarray
    _novelty: Novelty | None
    _predictor: Callable[[str], Predictor]
    _reading: Callable[[], AbstractContextManager[None]]

    def save(
        self,
        path: str | Path,
        write_more: Callable[[Path], None] | None = None,
        read_back: Callable[[Path], object] | None = None,
    ) -> None:
        """Save the fitted model to a folder, atomically; see `persistence`.

        Args:
            write_more: writes more files into the new folder; `load` checks them too.
            read_back: reads the new folder before it takes the place of the earlier one; None for `load`.

        Raises:
            ValueError: labels that JSON cannot represent, or `path` holds something other than a model.
        """
        check_is_fitted(self)
        require(
            "://" not in str(path), f"path: {path}; give a folder of this machine, since only `storage` may be remote"
        )
        labels = self.classes_.tolist()
        plain = all(isinstance(label, str | int | float | bool) for label in labels)
        require(plain, f"classes: labels of type {type(labels[0]).__name__} cannot be saved; take strings or numbers")
        # A grid search passes NumPy scalars, which JSON cannot represent.
        params = {n: v.tolist() if isinstance(v, np.generic | np.ndarray) else v for n, v in self.get_params().items()}
        params["storage"] = None if self.storage is None else str(self.storage)
        state = params["random_state"] if isinstance(params["random_state"], int) else None
        values = {
            "params": {**params, "random_state": state},
            "classes": labels,
            "classes_dtype": self.classes_.dtype.str,
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "fitted": {name: getattr(self, attribute) for name, attribute in _FITTED.items()},
        }
        arrays = {"origin": self._origin, "held_out": self._held_out, "usual_distances": self.usual_distances_}
        arrays["scale"], arrays["bias"] = self.calibration_
        arrays["new_classes"] = np.searchsorted(self.classes_, self.new_classes_)
        if self.transition_ is not None:
            arrays["transition"] = self.transition_
        if self._novelty is not None:
            arrays |= {f"novelty_{name}": np.atleast_1d(array) for name, array in vars(self._novelty).items()}
        with self._reading():
            parts = persistence.Parts(self.memory_, self.head_, arrays, values)
            persistence.save_parts(parts, Path(path), write_more, read_back or self.load)

    @classmethod
    def load(cls, path: str | Path, storage: str | Path | None = None) -> Self:
        """Load a saved model, with the rows of a table as they were then; `storage` is its address if it was moved.

        Raises:
            ValueError: not a model, a damaged one, or one of a later format.
        """
        path = Path(path)
        memory, head, arrays, values = read_consistently(path, lambda: persistence.load_parts(path, storage))
        try:
            model = cls(**values["params"])
            if storage is not None:
                model.storage = str(storage)
            model._validate_params()
            model.classes_ = np.array(values["classes"], dtype=np.dtype(values["classes_dtype"]))
            fitted = {attribute: values["fitted"][name] for name, attribute in _FITTED.items()}
            if values["feature_names"]:
                fitted["feature_names_in_"] = np.array(values["feature_names"], dtype=object)
            model._origin, model.memory_, model.head_ = arrays["origin"], memory, head
            model.calibration_, model.transition_ = (arrays["scale"], arrays["bias"]), arrays.get("transition")
            if model.transition_ is not None:
                cast(Memory, memory).transition = model.transition_
            model.new_classes_ = model.classes_[arrays.get("new_classes", np.empty(0, np.int64))]
            model.usual_distances_ = arrays.get("usual_distances", np.empty(0))  # missing up to 0.4.0
            model._novelty = None
            if "novelty_scores" in arrays:  # missing up to 0.5.0
                weights, centre, spread, own_scores, floor = (arrays[f"novelty_{f.name}"] for f in fields(Novelty))
                model._novelty = Novelty(weights, centre, spread, own_scores, float(floor[0]))
            own = arrays.get("held_out")  # format 1 stores all probabilities
            model._held_out = true_class_scores(arrays["probs"], arrays["y"]) if own is None else own
            check_classifier(memory, values, arrays, model._held_out)
            vars(model).update(fitted)
            probs, *_ = model._predictor("cpu").predict(np.zeros((2, memory.sums.shape[1]), np.float32))  # other parts
            require(np.allclose(probs.sum(1), 1), "head: probabilities do not sum to 1")
        except Exception as error:  # values of other types and shapes raise anything
            raise persistence.incomplete(path, error) from None
        return model

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        if "head_" in state:
            state["head_"] = head_to_arrays(state["head_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "head_" in state:
            state = {**state, "head_": head_from_arrays(*state["head_"])}
        super().__setstate__(state)

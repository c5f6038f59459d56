"""Methods of a classifier behind the transformers of a scikit-learn `Pipeline`, which hides them."""

from typing import Any

import numpy as np
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline

from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.classifier.explanation import Explanation
from attnknn.core.errors import require


def explain(estimator: Any, X: Any) -> Explanation:
    """`AttnKNNClassifier.explain` of a fitted classifier, `Pipeline` or search such as `GridSearchCV`."""
    classifier, Z = _transformed(estimator, X)
    return classifier.explain(Z)


def predict_set(estimator: Any, X: Any, alpha: float = 0.1) -> np.ndarray:
    """`AttnKNNClassifier.predict_set` of a fitted classifier, `Pipeline` or search such as `GridSearchCV`."""
    classifier, Z = _transformed(estimator, X)
    return classifier.predict_set(Z, alpha)


def novelty(estimator: Any, X: Any) -> np.ndarray:
    """`AttnKNNClassifier.novelty` of a fitted classifier, `Pipeline` or search such as `GridSearchCV`."""
    classifier, Z = _transformed(estimator, X)
    return classifier.novelty(Z)


def _transformed(estimator: Any, X: Any) -> tuple[AttnKNNClassifier, Any]:
    """The classifier at the end, and its input."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    search = isinstance(estimator, BaseSearchCV)
    require(not search, f"estimator: a {type(estimator).__name__} without a refitted best_estimator_; fit it first")
    if isinstance(estimator, Pipeline):
        transformers, last = estimator[:-1], estimator[-1]
        return _transformed(last, transformers.transform(X) if len(transformers) else X)
    name = type(estimator).__name__
    require(isinstance(estimator, AttnKNNClassifier), f"estimator: {name}; give one that ends with AttnKNNClassifier")
    return estimator, X

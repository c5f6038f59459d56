"""Display names and colours of methods, metrics and calibrations: one colour per method everywhere."""

from attnknn.evaluation.method import Method
from attnknn.evaluation.metrics import HIGHER_IS_BETTER as _HIGHER_IS_BETTER
from attnknn.evaluation.opponents import BEST, KNN, WITHOUT

# method: (display name, colour). The hues are distinct for colour-blind readers (Okabe & Ito, 2008).
METHODS = {
    "uniform": ("Uniform kNN", "#7f7f7f"),
    "distance": ("Distance-weighted kNN", "#0072b2"),
    "distance_vector": ("Distance + vector scaling", "#009e73"),
    "attention": ("Attention", "#d55e00"),
    "attention-means": ("Attention + class means", "#e07b39"),
    "attention-linear": ("Attention + linear head", "#a63603"),
    "distance-folds": ("Distance-weighted kNN, mean over folds", "#66aad1"),
    "attention-folds": ("Attention, mean over folds", "#e89e66"),
    "prototypes": ("Prototypes alone", "#e69f00"),
    "linear": ("Linear head", "#b07aa1"),
    "linear_temperature": ("Linear head + temperature", "#8c564b"),
    "cnn": ("Plain network", "#e377c2"),
    "cnn_temperature": ("Plain network + temperature", "#bc5090"),
    "bank-rbf": ("RBF regression on embeddings", "#6a3d9a"),
    "bank-mlp": ("MLP on embeddings", "#9e6ebd"),
    "bank-boosting": ("Boosting on embeddings", "#c7a6dd"),
    "heldout-linear": ("Logistic regression, fit rows only", "#4d4d00"),
    "heldout-rbf": ("RBF regression, fit rows only", "#808000"),
    "heldout-mlp": ("MLP, fit rows only", "#a6a64c"),
    "raw-uniform": ("kNN on the columns", "#a6a6a6"),
    "raw-distance": ("kNN on the columns, by distance", "#56b4e9"),
    "logistic": ("Logistic regression", "#9c755f"),
    "forest": ("Random forest", "#59a14f"),
    "boosting": ("Gradient boosting", "#117733"),
    "catboost": ("CatBoost", "#44aa99"),
    "xgboost": ("XGBoost", "#88ccee"),
    "gce-linear": ("Linear head, generalised cross-entropy", "#5e4fa2"),
    "gce-rbf": ("RBF network, generalised cross-entropy", "#8073ac"),
    "gce-mlp": ("MLP, generalised cross-entropy", "#b2abd2"),
    "cleaned-linear": ("CleanLearning, logistic regression", "#7f3b08"),
    "cleaned-rbf": ("CleanLearning, RBF regression", "#b35806"),
}
ROLES = {KNN: ("Best kNN", "#0072b2"), WITHOUT: ("Best without neighbours", "#b07aa1")}  # of opponents
ROLES |= {BEST: ("Best attention", "#a63603")}
# calibration: display name. A calibrated method is named `<method>_<calibration>`.
CALIBRATIONS = {
    "temperature": "temperature",
    "vector": "vector scaling",
    "isotonic": "isotonic",
    "dirichlet": "Dirichlet",
    "prior": "class prior",
    "forward": "noise correction",
}
METRICS = {
    "accuracy": "Accuracy",
    "f1_macro": "Macro F1",
    "balanced_accuracy": "Balanced accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "ece_adaptive": "ECE, equal mass",
    "ece_classwise": "ECE, classwise",
    # accuracies of the thirds of the classes by their rows in the bank
    "many": "Many-shot",
    "medium": "Medium-shot",
    "few": "Few-shot",
}
HIGHER_IS_BETTER = {*_HIGHER_IS_BETTER, "many", "medium", "few"}
LOWER_IS_BETTER = {*METRICS, "aurc", "eaurc"} - HIGHER_IS_BETTER


def method_name(method: str) -> str:
    """The display name of a method or role, joined by `/` where runs differ; an unknown one keeps its own."""
    if "/" in method:
        return " / ".join(map(method_name, method.split("/")))
    if method in METHODS or method in ROLES:
        return (METHODS | ROLES)[method][0]
    parts = Method.parse(method)
    if parts.base in METHODS and parts.calibration in CALIBRATIONS:
        return f"{METHODS[parts.base][0]} + {CALIBRATIONS[parts.calibration]}"
    if parts.base in METHODS and parts.k is not None:
        return f"{METHODS[parts.base][0]}, k {parts.k}"
    return method.replace("_", " ")


def method_colour(method: str) -> str:
    """The colour of a method in every plot; a calibrated method has that of its base."""
    method = method.partition("/")[0]
    base = method if method in METHODS | ROLES else Method.parse(method).base
    return (METHODS | ROLES).get(base, ("", "#444444"))[1]


def metric_name(metric: str) -> str:
    return METRICS.get(metric, metric)


def arrow(metric: str) -> str:
    """A metric's name with its better direction, where it has one."""
    return metric_name(metric) + (" ↑" if metric in HIGHER_IS_BETTER else " ↓" if metric in LOWER_IS_BETTER else "")

"""Images that change over time: a memory to which late labels are added, beside classifiers that are fitted again.

Encoder, head and memory know unchanged images. Other images arrive in steps, each changed more than those before. At
every step all methods answer images of this step first, and then get the labels of some others of it. Of the settings
of a method, that with the lowest log-loss on the labels received so far, before it got them, answers.
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, UInt8
from scipy.ndimage import gaussian_filter, rotate
from scipy.special import log_softmax
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.encoder.encoder import Encoder, embed
from attnknn.evaluation.calibration import fit_temperature
from attnknn.evaluation.paired_tests import Table, compare_repeats
from attnknn.experiments.new_classes import NearestMean

OURS, STATIC = "partial_fit, decay", "no labels"
OWN = (STATIC, "partial_fit", OURS, "partial_fit, newest")  # `AttnKNNClassifier`
SCORES = ("accuracy", "nll", "last_accuracy")
COLUMNS = ("condition", "repeat", "method", *SCORES)
_LEAST = 1e-12
_DECAYS = (1.0, 0.25, 0.0625)  # half-lives, in multiples of the number of late labels
_WINDOWS = (1.0, 4.0)  # in multiples of it
_SHARED = 0.5  # of the answered images, by two repeats
_RATES, _PASSES = (0.001, 0.01, 0.1), 5  # of stochastic gradient descent over each batch
Rows = tuple[np.ndarray, np.ndarray]  # vectors or images, classes 0 … C−1

Images = UInt8[np.ndarray, "B C H W"]


def _rounded(x: np.ndarray) -> Images:
    return np.clip(np.rint(x), 0, 255).astype(np.uint8)


def changed(x: Images, kind: str, t: float, rng: np.random.Generator) -> Images:
    """Images changed by a share t, 0 … 1, of the whole change."""
    values = x.astype(np.float32)
    if kind == "rotation":  # up to 60°
        return _rounded(rotate(values, 60 * t, axes=(3, 2), reshape=False, order=1))
    if kind == "brightness":  # down to a quarter
        return _rounded(values * (1 - 0.75 * t))
    if kind == "blur":  # up to a standard deviation of a tenth of the side
        return _rounded(gaussian_filter(values, (0, 0, *(0.1 * t * side for side in x.shape[2:]))))
    return _rounded(values + rng.normal(scale=0.3 * 255 * t, size=x.shape))


KINDS = ("rotation", "brightness", "blur", "noise")


class Learner(Protocol):
    """A classifier that takes more rows."""

    @property
    def classes_(self) -> np.ndarray: ...

    def log_probs(self, z: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]: ...

    def learn(self, z: Float[np.ndarray, "B D"], y: Int[np.ndarray, " B"]) -> None: ...


class PartialFit:
    """`AttnKNNClassifier` with a decay, or of the newest rows; 0 for all."""

    def __init__(self, fitted: AttnKNNClassifier, decay: float | None = None, newest: int = 0) -> None:
        self.model, self.newest = copy.deepcopy(fitted).set_params(decay=decay), newest

    @property
    def classes_(self) -> np.ndarray:
        return self.model.classes_

    def log_probs(self, z: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]:
        return np.log(np.maximum(self.model.predict_proba(z), _LEAST))

    def learn(self, z: Float[np.ndarray, "B D"], y: Int[np.ndarray, " B"]) -> None:
        self.model.partial_fit(z, y)
        if self.newest:
            self.model.keep(max(self.newest, len(self.classes_)), by="newest")


class FitAgain:
    """A classifier that is fitted again on all rows; temperature of lowest log-loss on held-out rows.

    Args:
        transform: of vectors.
        decay: later rows after which a row weighs half; None for equal weights.
        window: newest rows to fit on, and more until there are two classes; 0 for all.
    """

    def __init__(
        self,
        classifier: Any,
        transform: Callable[[np.ndarray], np.ndarray],
        train: Rows,
        held_out: Rows,
        decay: float | None = None,
        window: int = 0,
    ) -> None:
        self.classifier, self.transform, self.decay, self.window = classifier, transform, decay, window
        self.z, self.y, self.late = transform(train[0]), train[1], 0
        self.held_out = transform(held_out[0]), held_out[1]
        if isinstance(classifier, LogisticRegression) and not window:  # a window may lose a class
            classifier.warm_start = True
        self._fit()

    def _fit(self) -> None:
        start = min(max(len(self.y) - self.window, 0), np.flatnonzero(self.y != self.y[-1])[-1]) if self.window else 0
        z, y = self.z[start:], self.y[start:]
        age = np.minimum(np.arange(len(y))[::-1], self.late)  # rows of the start are of one age
        weight = np.ones(len(y)) if self.decay is None else np.exp2(-age / self.decay)
        with warnings.catch_warnings(action="ignore"):  # of iterations that end at their limit
            self.classifier.fit(z, y, sample_weight=weight)
        self._fit_temperature()

    def _fit_temperature(self) -> None:
        self.classes_ = self.classifier.classes_
        known = np.isin(self.held_out[1], self.classes_)
        logits, y = self._logits(self.held_out[0][known]), np.searchsorted(self.classes_, self.held_out[1][known])
        self.temperature = fit_temperature(logits, y)

    def _logits(self, z: np.ndarray) -> np.ndarray:
        logits = self.classifier.decision_function(z)
        return np.stack([-logits / 2, logits / 2], 1) if logits.ndim == 1 else logits

    def log_probs(self, z: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "B C"]:
        return log_softmax(self._logits(self.transform(z)) / self.temperature, axis=1)

    def learn(self, z: Float[np.ndarray, "B D"], y: Int[np.ndarray, " B"]) -> None:
        self.z, self.y = np.concatenate([self.z, self.transform(z)]), np.concatenate([self.y, y])
        self.late += len(y)
        self._fit()


class SGD(FitAgain):
    """Logistic regression by stochastic gradient descent, with `partial_fit`."""

    def __init__(self, rate: float, transform: Callable[[np.ndarray], np.ndarray], train: Rows, held_out: Rows) -> None:
        super().__init__(SGDClassifier(loss="log_loss", random_state=0), transform, train, held_out)
        self.classifier.set_params(learning_rate="constant", eta0=rate)

    def learn(self, z: Float[np.ndarray, "B D"], y: Int[np.ndarray, " B"]) -> None:
        for _ in range(_PASSES):
            self.classifier.partial_fit(self.transform(z), y)
        self._fit_temperature()


def own_learners(fitted: AttnKNNClassifier, n: int) -> dict[str, Sequence[Learner]]:
    """Settings of each way to use a fitted classifier, for n late labels."""
    plain, decays = PartialFit(fitted), [PartialFit(fitted, decay * n) for decay in _DECAYS]
    newest = [PartialFit(fitted, newest=round(size * n)) for size in _WINDOWS]
    ways: list[Sequence[Learner]] = [[plain], [PartialFit(fitted)], [PartialFit(fitted), *decays], newest]
    return dict(zip(OWN, ways, strict=True))


def other_learners(train: Rows, held_out: Rows, n: int) -> dict[str, Sequence[Learner]]:
    """Settings of each other method, for n late labels."""
    scale: Any = StandardScaler().fit(train[0]).transform
    features = RBFSampler(gamma=1 / train[0].shape[1], n_components=1000, random_state=0)
    random_features: Any = make_pipeline(StandardScaler(), features).fit(train[0]).transform
    result: dict[str, Sequence[Learner]] = {}
    kinds: dict[str, tuple[Callable[[], Any], Any]] = {
        "logistic": (lambda: LogisticRegression(max_iter=300), scale),
        "random_features": (RidgeClassifier, random_features),
        "class_means": (NearestMean, normalize),
    }
    for name, (make, transform) in kinds.items():
        data = transform, train, held_out
        result[name] = [FitAgain(make(), *data)]
        result[f"{name}, decay"] = [FitAgain(make(), *data, decay) for decay in (None, *(d * n for d in _DECAYS))]
        result[f"{name}, newest"] = [FitAgain(make(), *data, window=round(size * n)) for size in _WINDOWS]
    result["sgd"] = [SGD(rate, scale, train, held_out) for rate in _RATES]
    return result


def true_log_probs(learner: Learner, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (B,) of the classes y, and whether they are predicted; `_LEAST` of a class it has no row of."""
    log_p, classes = learner.log_probs(z), learner.classes_
    column = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    known = classes[column] == y
    return np.where(known, log_p[np.arange(len(y)), column], np.log(_LEAST)), classes[log_p.argmax(1)] == y


def follow(learners: Sequence[Learner], steps: Iterable[tuple[Rows, Rows]], labels: bool = True) -> dict[str, float]:
    """`SCORES` of the answers to images of each step, before the labels of others of it are learned.

    Args:
        steps: images to answer, and images with late labels.
        labels: whether they are learned.
    """
    losses, accuracies, nlls = np.zeros(len(learners)), [], []
    for queries, late in steps:
        log_p, right = true_log_probs(learners[int(losses.argmin())], *queries)
        accuracies.append(float(right.mean()))
        nlls.append(-float(log_p.mean()))
        if labels:
            losses -= [true_log_probs(learner, *late)[0].sum() for learner in learners]
            for learner in learners:
                learner.learn(*late)
    return dict(zip(SCORES, (float(np.mean(accuracies)), float(np.mean(nlls)), accuracies[-1]), strict=True))


def drift_of_images(
    split: Split,
    encoder: Encoder,
    bf16: bool,
    ns: Sequence[int],
    n_steps: int,
    repeats: int,
    seed: int,
    device: str,
    track: Callable[..., Iterable[Any]],
) -> Table:
    """`SCORES` of every method for each kind of change and number of late labels; no rows for tables, or without `ns`.

    Args:
        ns: numbers of late labels; those of more than half of the test rows are left out.
        repeats: with other test rows in the steps each.
        track: results, total= → results, behind a progress bar.
    """
    x, y, part = split.x, np.asarray(split.y), np.asarray(split.part)
    if x.ndim < 4:
        return []
    bank, held, test = (np.flatnonzero(np.isin(part, parts)) for parts in ((BANK,), (FIT, VAL), (TEST,)))
    ns = [n for n in ns if n_steps <= n <= len(test) // 2]
    if not ns:
        return []
    bank = np.random.default_rng(seed).permutation(bank)  # windows of rows sorted by class would lack classes
    train, held_out = ((embed(encoder, np.asarray(x[rows]), device, bf16)[0], y[rows]) for rows in (bank, held))
    fitted = AttnKNNClassifier(random_state=seed, device=device).fit(*train, held_out=held_out)
    table: Table = []
    for kind, repeat in track(product(KINDS, range(repeats)), total=len(KINDS) * repeats):
        rng = np.random.default_rng([seed, repeat])
        order = rng.permutation(test)

        def embedded(rows: np.ndarray, step: int, kind: str = kind, rng: np.random.Generator = rng) -> Rows:
            images = changed(np.asarray(x[rows]), kind, (step + 1) / n_steps, rng)
            return embed(encoder, images, device, bf16)[0], y[rows]

        queries, late = order[len(order) // 2 :], order[: max(ns)]
        steps = [
            tuple(embedded(rows, step) for rows in pair)
            for step, pair in enumerate(zip(*(np.array_split(rows, n_steps) for rows in (queries, late)), strict=True))
        ]
        for n in ns:
            part_of = [(first, tuple(array[: n // n_steps] for array in second)) for first, second in steps]
            learners = own_learners(fitted, n) | other_learners(train, held_out, n)
            for name, own in learners.items():
                row = {"condition": f"{kind}, {n} labels", "repeat": repeat, "method": name}
                table.append(row | follow(own, part_of, name != STATIC))  # type: ignore[arg-type]
    return table


def best_others(table: pd.DataFrame) -> pd.DataFrame:
    """Ours beside the other method of highest mean accuracy, chosen on these results.

    Returns:
        A line for each condition: other, its name; means over repeats of `SCORES` of ours, and other_<score>;
        <way>_accuracy of the other ways to use ours; difference in accuracy, with low, high and p over repeats.
    """
    rows = []
    for condition, own in table.groupby("condition", sort=False):
        by_method = {str(name): rows.sort_values("repeat") for name, rows in own.groupby("method", sort=False)}
        means = {name: {score: float(rows[score].mean()) for score in SCORES} for name, rows in by_method.items()}
        best = max((name for name in means if name not in OWN), key=lambda name: means[name]["accuracy"])
        row: dict[str, Any] = {"condition": condition, "other": best, **means[OURS]}
        row |= {f"other_{score}": value for score, value in means[best].items()}
        row |= {f"{name}_accuracy": means[name]["accuracy"] for name in OWN if name != OURS}
        accuracies = (by_method[name]["accuracy"].to_numpy() for name in (OURS, best))
        row |= compare_repeats(*accuracies, shared=_SHARED)
        rows.append(row)
    return pd.DataFrame(rows)

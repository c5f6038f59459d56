"""Novelty of rows of unknown classes, and of rows with mixed columns, beside other scores.

Encoder and memory know some of the classes. `mixed columns` are test rows with each value taken from another row, so
that every column has its distribution and none its relation to the others.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.evaluation.paired_tests import Table, compare_repeats
from attnknn.experiments.unseen_classes import encoder_of_known, known_classes

OURS = "novelty"
SHARE = 0.4  # of the classes, unknown
LEVEL = 0.05  # p value up to which rows are rejected
UNKNOWN, MIXED = "unknown classes", "mixed columns"


class Rows(NamedTuple):
    """Embeddings of rows, and logits of the known classes."""

    z: Float[np.ndarray, "N D"]
    logits: Float[np.ndarray, "N C"]

    def take(self, rows: np.ndarray) -> "Rows":
        return Rows(self.z[rows], self.logits[rows])


def max_softmax(rows: Rows) -> np.ndarray:
    """1 − the highest probability (Hendrycks and Gimpel 2017)."""
    return -np.expm1(rows.logits.max(1) + energy(rows))


def energy(rows: Rows) -> np.ndarray:
    """−log Σ exp logits (Liu et al. 2020)."""
    total: Any = logsumexp(rows.logits, axis=1)
    return -total


def mahalanobis(train: Rows, y: np.ndarray) -> Callable[[Rows], np.ndarray]:
    """Squared distance to the nearest class mean under the shared covariance (Lee et al. 2018)."""
    means = np.stack([train.z[y == c].mean(0) for c in np.unique(y)])
    centred = train.z - means[np.searchsorted(np.unique(y), y)]
    values, vectors = np.linalg.eigh(np.cov(centred.T))
    kept = values > 1e-6 * values.max()
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    return lambda rows: NearestNeighbors(n_neighbors=1).fit(means @ whiten).kneighbors(rows.z @ whiten)[0][:, 0]


def deep_knn(train: Rows, k: int) -> Callable[[Rows], np.ndarray]:
    """Distance to the k-th neighbour among unit vectors (Sun et al. 2022)."""
    index = NearestNeighbors(n_neighbors=min(k, len(train.z))).fit(normalize(train.z))
    return lambda rows: index.kneighbors(normalize(rows.z))[0][:, -1]


def vim(train: Rows) -> Callable[[Rows], np.ndarray]:
    """Norm outside the principal half of the space, scaled to logits, and energy (Wang et al. 2022)."""
    centre = train.z.mean(0)
    _, vectors = np.linalg.eigh(np.cov((train.z - centre).T))
    rest = vectors[:, : -(-train.z.shape[1] // 2)]

    def residual(rows: Rows) -> np.ndarray:
        return np.linalg.norm((rows.z - centre) @ rest, axis=1)

    scale = train.logits.max(1).mean() / max(residual(train).mean(), 1e-12)
    return lambda rows: scale * residual(rows) + energy(rows)


def scores(train: Rows, y: np.ndarray) -> dict[str, Callable[[Rows], np.ndarray]]:
    """Scores by name, from training rows and their labels; higher for rows that are less like these."""
    return {
        "max_softmax": max_softmax,
        "energy": energy,
        "mahalanobis": mahalanobis(train, y),
        "deep_knn_1": deep_knn(train, 1),
        "deep_knn_10": deep_knn(train, 10),
        "deep_knn_50": deep_knn(train, 50),
        "vim": vim(train),
    }


def mixed_columns(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows with each value taken from another row, by column."""
    flat = x.reshape(len(x), -1)
    return rng.permuted(flat, axis=0).reshape(x.shape)


def _logits(decision: np.ndarray) -> np.ndarray:
    """Logits of all classes; scikit-learn gives one column for two."""
    return decision if decision.ndim == 2 else np.stack([-decision, decision], 1) / 2


def detection(usual: np.ndarray, novel: np.ndarray) -> dict[str, float]:
    """AUROC, and the share of usual rows above the score that 95 % of the novel ones reach."""
    novelty = np.repeat([0, 1], [len(usual), len(novel)])
    auroc = roc_auc_score(novelty, np.concatenate([usual, novel]))
    return {"auroc": float(auroc), "fpr95": float((usual >= np.quantile(novel, 0.05)).mean())}


def _one_repeat(
    split: Split, known: np.ndarray, encoder: Encoder, trained: bool, bf16: bool, seed: int, device: str
) -> Table:
    x, y, part = (np.asarray(array) for array in (split.x, split.y, split.part))
    known_rows = np.isin(y, known)
    bank, held, test = (known_rows & np.isin(part, parts) for parts in ((BANK,), (FIT, VAL), (TEST,)))
    mixed = mixed_columns(x[test], np.random.default_rng(seed))
    (z, logits), (z_mixed, logits_mixed) = (embed(encoder, rows, device, bf16) for rows in (x, mixed))
    train = bank if trained else bank | held
    if not trained or logits is None:
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(z[train], y[train])
        logits, logits_mixed = (_logits(linear.decision_function(a)) for a in (z, z_mixed))
    everything, far = Rows(z, logits), Rows(z_mixed, np.asarray(logits_mixed))
    model = AttnKNNClassifier(random_state=seed, device=device)
    model.fit(z[train], y[train], held_out=(z[held], y[held]) if trained else None)
    by_name = {OURS: lambda rows: -model.novelty(rows.z), **scores(everything.take(train), y[train])}
    novel = {UNKNOWN: everything.take(~known_rows), MIXED: far}
    usual, rows = everything.take(test), []
    for name, score in by_name.items():
        of_usual = score(usual)
        for condition, own in novel.items():
            if not len(own.z):
                continue
            of_novel = score(own)
            row = {"condition": condition, "repeat": seed, "method": name, **detection(of_usual, of_novel)}
            if name == OURS:
                row |= {"rejected": float((-of_usual <= LEVEL).mean())}
                row |= {"rejected_novel": float((-of_novel <= LEVEL).mean())}
            rows.append(row)
    return rows


def detect_novelty(
    split: Split, settings: TrainEmbedder, stored: Encoder, repeats: int, seed: int, device: str, label: str
) -> Table:
    """AUROC and false positive rate of every score for both kinds of novel rows, with other classes in each repeat.

    Args:
        stored: encoder of the split; taken where it reads no labels, or all classes are known.
    """
    rows: Table = []
    for repeat, known in enumerate(known_classes(len(split.classes), SHARE, repeats, seed)):
        encoder = encoder_of_known(split, known, settings, stored, seed + repeat, device, f"{label}, {repeat}")
        trained = settings.representation == "trained"
        rows += _one_repeat(split, known, encoder, trained, settings.bf16, repeat, device)
    return rows


def best_others(table: pd.DataFrame) -> pd.DataFrame:
    """Ours beside the other score of highest mean AUROC, chosen on these results, and beside `max_softmax`.

    Returns:
        A line for each condition: other, its name; means over repeats of auroc, fpr95, rejected and rejected_novel, of
        other_auroc, other_fpr95 and softmax_auroc; difference in AUROC, with low, high and p over repeats.
    """
    rows = []
    for condition, own in table.groupby("condition", sort=False):
        by_method = {str(name): rows.sort_values("repeat") for name, rows in own.groupby("method", sort=False)}
        ours = by_method.pop(OURS)
        best = max(by_method, key=lambda name: by_method[name]["auroc"].mean())
        row: dict[str, Any] = {"condition": condition, "other": best}
        row |= {name: float(ours[name].mean()) for name in ("auroc", "fpr95", "rejected", "rejected_novel")}
        row |= {f"other_{name}": float(by_method[best][name].mean()) for name in ("auroc", "fpr95")}
        row["softmax_auroc"] = float(by_method["max_softmax"]["auroc"].mean())
        row |= compare_repeats(ours["auroc"].to_numpy(), by_method[best]["auroc"].to_numpy())
        rows.append(row)
    return pd.DataFrame(rows)

"""What is behind a prediction: its neighbours, weights and votes, and changes that would change it."""

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from attnknn.classifier.explanation_plot import as_html, as_percent, plot_neighbours
from attnknn.core.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NULL_NAMES = {"shares": "class shares", "means": "class means", "linear": "linear classifier"}
_QUERIES, _NEIGHBOURS = 5, 8  # shown


@dataclass(frozen=True, repr=False)
class Explanation:
    """Neighbours, attention weights and votes behind predictions.

    A notebook shows the heaviest neighbours as tables, or as pictures after `with_images`; `to_frame` and `plot` give
    them for other uses.

    The weights of the null neighbours, one a class, come from what `null_scores_` says: class shares, class means or
    the linear classifier. `weights` and `null` of a query sum to 1.
    """

    ids: np.ndarray  # (B, K) row ids of the neighbours, nearest first, as in `kneighbors` and `forget`
    labels: np.ndarray  # (B, K) their classes, which vote
    distances: np.ndarray  # (B, K)
    weights: np.ndarray  # (B, K) attention weights
    null: np.ndarray  # (B, C) weights of the null neighbours
    votes: np.ndarray  # (B, C), null plus the weights of each class's neighbours
    probabilities: np.ndarray  # (B, C) calibrated votes, as in `predict_proba`
    predictions: np.ndarray  # (B,)
    shares: np.ndarray  # (B, K) of the votes for the predicted class, by neighbour; 0 for other labels
    null_share: np.ndarray  # (B,) of these votes, by the null neighbour; it and `shares` sum to 1
    distance_percentiles: np.ndarray  # (B,), as in `distance_percentiles`
    given_labels: np.ndarray  # (B, K) labels as given to `fit`, where `labels` are corrected; see `label_noise`
    added: np.ndarray  # (B, K) whether the neighbour was added after neighbour statistics were computed; see `storage`
    novelty: np.ndarray  # (B,) p values, as in `novelty`
    null_scores: str = "class shares"  # what scores the null neighbours: that, class means or linear classifier
    images: Any = None  # of `with_images`
    query_images: Any = None

    def with_images(self, images: Any, queries: Any = None) -> Self:
        """The explanation with pictures, which a notebook and `plot` show: paths of files or arrays.

        Args:
            images: picture of each row of the memory in the order of ids, as a list, a series, or an array (N, H, W) or
                (N, H, W, 3); or a dict by id.
            queries: picture of each query, likewise.
        """
        images, queries = (list(own) if isinstance(own, pd.Series) else own for own in (images, queries))
        count, largest = len(self.predictions), int(self.ids.max())
        few = f"images: {len(images)}; a neighbour has id {largest}, so give one for each row of the memory"
        require(isinstance(images, dict) or len(images) > largest, few)
        own = count if queries is None else len(queries)
        require(own == count, f"queries: {own} pictures of {count} queries; give one for each")
        return replace(self, images=images, query_images=queries)

    def __repr__(self) -> str:
        rows = [f"{label} ({p:.2f})" for label, p in zip(self.predictions, self.probabilities.max(1), strict=True)]
        shown = ", ".join(rows[:_QUERIES]) + (", …" if len(rows) > _QUERIES else "")
        null = as_percent(float(self.null.sum(1).mean()))
        parts = f"{self.ids.shape[1]} neighbours and the {self.null_scores} ({null} of the weight)"
        return f"Explanation of {len(rows)} prediction{'s' if len(rows) != 1 else ''} by {parts}: {shown}"

    def to_frame(self) -> pd.DataFrame:
        """One line a neighbour, those of a query by falling weight, and a last one of its null neighbours, id −1.

        Columns: query (position), prediction, id, label, given_label, distance, weight, share (of the votes for the
        prediction) and added.
        """
        order = np.argsort(-self.weights, axis=1, kind="stable")
        rows, k = np.arange(len(order))[:, None], order.shape[1]
        columns = {"query": np.repeat(rows[:, 0], k), "prediction": np.repeat(self.predictions, k)}
        labels = {"label": self.labels.astype(object), "given_label": self.given_labels.astype(object)}
        names = {"id": self.ids, **labels, "distance": self.distances}
        names |= {"weight": self.weights, "share": self.shares, "added": self.added}
        frame = pd.DataFrame(columns | {name: array[rows, order].ravel() for name, array in names.items()})
        null = {"query": rows[:, 0], "prediction": self.predictions, "id": -1, "weight": self.null.sum(1)}
        others = pd.DataFrame(null | {"label": None, "given_label": None, "share": self.null_share, "added": False})
        frame = pd.concat([frame[frame["id"] >= 0], others], ignore_index=True)
        return frame.sort_values("query", kind="stable", ignore_index=True)

    def _repr_html_(self) -> str:
        """The heaviest neighbours of the first queries."""
        frame, parts = self.to_frame(), []
        for query in range(min(_QUERIES, len(self.predictions))):
            lines = frame[frame["query"] == query]
            shown = lines[lines["id"] >= 0].head(_NEIGHBOURS)
            picture, pictures = self._pictures(query, shown)
            label, p = escape(str(self.predictions[query])), self.probabilities[query].max()
            rest = len(lines) - 1 - len(shown)
            more = as_percent(lines["weight"].iloc[len(shown) : -1].sum())
            others = f"{rest} more neighbours weigh {more}, " if rest else ""
            null = f"{others}the {self.null_scores} {as_percent(lines['weight'].iloc[-1])}"
            parts.append(
                f"<p><b>{query}: {label}</b> ({as_percent(p)})</p>{as_html(shown, pictures, picture)}<p>{null}</p>"
            )
        more = len(self.predictions) - len(parts)
        return "".join(parts) + (f"<p>and {more} more predictions</p>" if more else "")

    def plot(self, query: int = 0, n: int = _NEIGHBOURS) -> "Figure":
        """Draw the n heaviest neighbours of a query as a matplotlib figure: bars of weights, or pictures if there are.

        Args:
            query: position.
        """
        lines = self.to_frame().query("query == @query and id >= 0").head(n)
        require(n > 0, f"n: {n}; give 1 or more")
        require(len(lines) > 0, f"query: {query}; give a position below {len(self.predictions)}")
        picture, pictures = self._pictures(query, lines)
        title = f"{self.predictions[query]} ({as_percent(self.probabilities[query].max())})"
        others = f"{self.null_scores}: {as_percent(self.null[query].sum())}"
        return plot_neighbours(lines, title, others, pictures, picture)

    def _pictures(self, query: int, neighbours: pd.DataFrame) -> tuple[Any, list[Any] | None]:
        """Picture of a query or None, and those of its neighbours or None."""
        try:
            images = None if self.images is None else [self.images[row] for row in neighbours["id"].tolist()]
            return None if self.query_images is None else self.query_images[query], images
        except (KeyError, IndexError):
            missing = "images: none for a row of the memory, or a query; give one for each"
            raise InputError(missing) from None


@dataclass(frozen=True)
class Counterfactual:
    """A change of the memory that changes a prediction."""

    how: str  # `forget` or `relabel`
    ids: np.ndarray  # (M,) ids of the rows to forget or relabel, largest weight first
    label: Any  # the second most probable class, assigned by `relabel`
    prediction: Any  # after the change
    probabilities: np.ndarray  # (C,) after the change
    turned: bool  # whether the prediction changed; False if the search ran out of rows

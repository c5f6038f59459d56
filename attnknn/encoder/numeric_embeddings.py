"""Embeddings of a table's numeric columns, which let an MLP tell close values apart (Gorishniy et al. 2022)."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.errors import needs_extra, require

KINDS = ("none", "linear", "periodic", "piecewise")


def numeric_columns(x: np.ndarray) -> list[int]:
    """The columns of a table x (N, F) that take more than two values: neither marks nor one-hot categories."""
    low, high = x.min(0), x.max(0)
    return np.flatnonzero(((x != low) & (x != high)).any(0)).tolist()


def fit_numeric(x: np.ndarray, kind: str, dim: int, frequencies: int, scale: float, bins: int) -> dict[str, Any]:
    """Keyword arguments of `NumericEmbedding` for a table whose bank rows are x (N, F); none where nothing is numeric.

    Args:
        kind: linear, periodic or piecewise; none for no embeddings.
        dim: of each column's embedding.
        frequencies, scale: of periodic ones.
        bins: of piecewise ones, the most for a column, between quantiles of the bank and of its distinct values.
    """
    require(kind in KINDS, f"train_embedder.numeric.kind: {kind}; allowed are {', '.join(KINDS)}")
    columns = [] if kind == "none" else numeric_columns(x)
    if not columns:
        return {}
    settings: dict[str, Any] = {"kind": kind, "columns": columns, "dim": dim}
    if kind == "periodic":
        settings |= {"frequencies": frequencies, "scale": scale}
    if kind == "piecewise":
        settings["edges"] = [_edges(x[:, column], bins).tolist() for column in columns]
    return settings


def _edges(values: np.ndarray, bins: int) -> np.ndarray:
    """Edges of at most so many bins: quantiles of the rows; where these repeat, of the distinct values as well.

    Of a column that is 0 in nine rows of ten, quantiles alone leave the rest a few bins. Several bins between two
    values say nothing more of them, but a step from the one to the other then weighs as much as it does in a column of
    many values.
    """
    rows = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)).astype(np.float32))
    places = np.linspace(0, 1, max(0, bins + 1 - len(rows)) + 2)[1:-1]
    return np.union1d(rows, np.quantile(np.unique(values), places).astype(np.float32))


class NumericEmbedding(nn.Module):
    """x (B, F) → (B, F′): each numeric column becomes `dim` numbers, the other columns stay as they are.

    - linear: ReLU(w·v + b).
    - periodic: ReLU(W·[cos 2πcv, sin 2πcv] + b), the frequencies c learned, from N(0, scale²) at the start.
    - piecewise: w·v + b + W·t, t(v) how far v has come through each bin (version B of the package, where W is 0 at
      the start).

    Args:
        features: F.
        columns: which are numeric.
        edges: of the bins, ascending, a list a column; for piecewise.
    """

    def __init__(
        self,
        features: int,
        kind: str,
        columns: Sequence[int],
        dim: int,
        frequencies: int = 0,
        scale: float = 0.0,
        edges: Sequence[Sequence[float]] = (),
    ) -> None:
        super().__init__()
        with needs_extra("pipeline", f"{kind} numeric embedding"):
            import rtdl_num_embeddings as rtdl

        n = len(columns)
        if kind == "linear":
            self.embed: nn.Module = rtdl.LinearReLUEmbeddings(n, dim)
        elif kind == "periodic":
            self.embed = rtdl.PeriodicEmbeddings(
                n, dim, n_frequencies=frequencies, frequency_init_scale=scale, activation=True, lite=False
            )
        else:
            with warnings.catch_warnings():  # a column of one bin is as good as linear, and says so
                warnings.simplefilter("ignore")
                self.embed = rtdl.PiecewiseLinearEmbeddings(
                    [torch.tensor(e) for e in edges], dim, activation=False, version="B"
                )
        others = sorted(set(range(features)) - set(columns))
        self.columns: Tensor
        self.others: Tensor
        self.register_buffer("columns", torch.tensor(list(columns)), persistent=False)
        self.register_buffer("others", torch.tensor(others, dtype=torch.long), persistent=False)
        self.out_dim = n * dim + len(others)

    def forward(self, x: Float[Tensor, "B F"]) -> Float[Tensor, "B E"]:
        """Embeddings of the numeric columns, then the other columns."""
        return torch.cat([self.embed(x[:, self.columns]).flatten(1), x[:, self.others]], dim=1)

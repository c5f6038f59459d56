"""Embeddings of a table's numeric columns, ahead of an MLP (Gorishniy et al. 2022)."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnknn.core.errors import needs_extra


def numeric_columns(x: np.ndarray) -> list[int]:
    """Columns of a table x (N, F) with more than two values: neither missing-value markers nor one-hot categories."""
    low, high = x.min(0), x.max(0)
    return np.flatnonzero(((x != low) & (x != high)).any(0)).tolist()


def fit_numeric(x: np.ndarray, kind: str, dim: int, frequencies: int, scale: float, bins: int) -> dict[str, Any]:
    """Keyword arguments of `NumericEmbedding` for a table with bank rows x (N, F); empty without numeric columns.

    Args:
        kind: linear, periodic, piecewise or none.
        dim: size of each column's embedding.
        frequencies, scale: number and initial standard deviation of the frequencies of `periodic`.
        bins: maximum number of bins per column of `piecewise`.
    """
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
    """Edges of at most `bins` bins: quantiles of the rows; where these repeat, quantiles of the distinct values too.

    In a column that is 0 in nine rows of ten, the rows' quantiles alone leave few bins to the other values.
    """
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)).astype(np.float32))
    levels = np.linspace(0, 1, max(0, bins + 1 - len(edges)) + 2)[1:-1]
    return np.union1d(edges, np.quantile(np.unique(values), levels).astype(np.float32))


class NumericEmbedding(nn.Module):
    """Embed each numeric column of x (B, F) in `dim` numbers and leave the others: (B, F′).

    - linear: ReLU(w·v + b).
    - periodic: ReLU(W·[cos 2πcv, sin 2πcv] + b), frequencies c learned, initialised from N(0, scale²).
    - piecewise: w·v + b + W·t, t the piecewise linear encoding of v (version B of rtdl_num_embeddings, W initially 0).

    Args:
        features: F.
        columns: the numeric columns.
        edges: ascending bin edges of each numeric column, for piecewise.
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
            bins = [torch.tensor(e) for e in edges]
            with warnings.catch_warnings():  # that a column of one bin is the same as linear
                warnings.simplefilter("ignore")
                self.embed = rtdl.PiecewiseLinearEmbeddings(bins, dim, activation=False, version="B")
        others = sorted(set(range(features)) - set(columns))
        self.columns: Tensor
        self.others: Tensor
        self.register_buffer("columns", torch.tensor(list(columns)), persistent=False)
        self.register_buffer("others", torch.tensor(others, dtype=torch.long), persistent=False)
        self.out_dim = n * dim + len(others)

    def forward(self, x: Float[Tensor, "B F"]) -> Float[Tensor, "B E"]:
        """Embeddings of the numeric columns, then the other columns."""
        return torch.cat([self.embed(x[:, self.columns]).flatten(1), x[:, self.others]], dim=1)

"""Draw the neighbours of a query with matplotlib, or as HTML."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from PIL import Image

from attnknn.core.errors import needs_extra, require
from attnknn.core.figure import INK, as_png, new_figure, style_axes
from attnknn.data.image_folder import decode, open_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUPPORTING, OTHER = "#2f6f9f", "#b3422e"  # neighbours of the predicted class, and of others
_SIDE = 96  # pixels of pictures in HTML


def as_percent(share: float) -> str:
    """In percent with one decimal; "<0.1%" and ">99.9%" where that would round to none or all."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def as_html(neighbours: pd.DataFrame, images: Sequence[Any] | None, image: Any) -> str:
    """Lines of `Explanation.to_frame` as a table, or as pictures with labels and weights if there are any."""
    if images is None:
        kinds = {"weight": as_percent, "share": as_percent, "distance": "{:.4g}".format}
        columns = neighbours[["id", "label", "distance", "weight", "share"]]
        return columns.to_html(index=False, border=0, formatters=kinds)
    pictures = [("query", image)] if image is not None else []
    columns = (neighbours[name].tolist() for name in ("id", "label", "weight"))
    for row, label, weight, picture in zip(*columns, images, strict=True):
        pictures.append((f"#{row}: {label} {as_percent(weight)}", picture))
    style = f'style="height: {_SIDE}px; image-rendering: pixelated; display: block"'
    cells = [f'<td><img {style} src="{_data_url(picture)}">{escape(text)}</td>' for text, picture in pictures]
    return f"<table><tr>{''.join(cells)}</tr></table>"


def _data_url(picture: Any) -> str:
    pixels, buffer = Image.fromarray(to_pixels(picture)), BytesIO()
    pixels.thumbnail((2 * _SIDE, 2 * _SIDE))
    pixels.save(buffer, "PNG")
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"


def to_pixels(picture: Any) -> np.ndarray:
    """A file of a picture, or an array, as uint8 (H, W) or (H, W, 3); values other than uint8 are stretched to it."""
    if isinstance(picture, str) or hasattr(picture, "__fspath__"):
        with open_picture(Path(picture)) as file:
            pixels = decode(file, str(picture))
        return pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    pixels = np.asarray(picture)
    pixels = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    valid = pixels.dtype.kind in "biuf" and (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3))
    kinds = f"images: {type(picture).__name__} of shape {pixels.shape}; give paths, or arrays (H, W) or (H, W, 3)"
    require(valid and pixels.size > 0, kinds)
    if pixels.dtype == np.uint8:
        return pixels
    low, high = float(pixels.min()), float(pixels.max())
    return (255 * (pixels - low) / max(high - low, 1e-12)).astype(np.uint8)


def plot_neighbours(
    neighbours: pd.DataFrame,
    title: str,
    others: str,
    images: Sequence[Any] | None = None,
    image: Any = None,
) -> "Figure":
    """Bars of weights, or pictures.

    Args:
        neighbours: lines of `Explanation.to_frame`.
        title: the prediction with its probability.
        others: what else weighs how much.
        images: of the neighbours; None for bars.
        image: of the query.
    """
    with needs_extra("plot", "plot"):
        import matplotlib  # noqa: F401
    labels = zip(neighbours["label"], neighbours["prediction"], strict=True)
    colours = [SUPPORTING if label == prediction else OTHER for label, prediction in labels]
    if images is None:
        figure = new_figure(3.4, 0.6 + 0.24 * len(neighbours))
        axes = figure.subplots()
        axes.barh(range(len(neighbours)), 100 * neighbours["weight"], color=colours, height=0.7)
        names = [f"{label}  #{row}" for label, row in zip(neighbours["label"], neighbours["id"], strict=True)]
        axes.set_yticks(range(len(neighbours)), names, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel(f"weight, % ({others})")
        axes.set_title(title, size=9, color=INK, parse_math=False)
        style_axes(axes)
        return _shown_in_notebooks(figure)
    pictures = [(title, INK, image)] if image is not None else []
    weights = neighbours["weight"].tolist()
    for label, weight, colour, picture in zip(neighbours["label"], weights, colours, images, strict=True):
        pictures.append((f"{label}  {as_percent(weight)}", colour, picture))
    figure = new_figure(1.1 * len(pictures), 1.55)
    for axes, (text, colour, picture) in zip(
        figure.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True
    ):
        axes.imshow(to_pixels(picture), cmap="gray", vmin=0, vmax=255)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=colour, linewidth=1.6)
        axes.set_title(text, size=7, color=colour, parse_math=False)
    figure.suptitle(others if image is not None else f"{title}; {others}", size=7, color=INK, parse_math=False)
    return _shown_in_notebooks(figure)


def _shown_in_notebooks(figure: "Figure") -> "Figure":
    """Let a notebook show the figure, also where pyplot, which tells it how, is not imported."""
    figure._repr_png_ = lambda: as_png(figure)  # type: ignore[attr-defined]
    return figure

"""Draw the neighbours of a query with matplotlib."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from attnknn.core.errors import needs_extra
from attnknn.core.figure import INK, as_png, new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUPPORTING, OTHER = "#2f6f9f", "#b3422e"  # neighbours of the predicted class, and of others


def plot_neighbours(
    neighbours: pd.DataFrame, prediction: str, probability: float, images: Any = None, image: Any = None
) -> "Figure":
    """Bars of weights, or pictures.

    Args:
        neighbours: lines of `Explanation.to_frame`.
        images: by id; None for bars.
        image: of the query.
    """
    with needs_extra("pipeline", "plot"):
        import matplotlib  # noqa: F401
    colours = [SUPPORTING if str(label) == prediction else OTHER for label in neighbours["label"]]
    title = f"{prediction} ({probability:.1%})"
    if images is None:
        figure = new_figure(3.4, 0.6 + 0.24 * len(neighbours))
        axes = figure.subplots()
        axes.barh(range(len(neighbours)), 100 * neighbours["weight"], color=colours, height=0.7)
        names = [f"{label}  #{row}" for label, row in zip(neighbours["label"], neighbours["id"], strict=True)]
        axes.set_yticks(range(len(neighbours)), names, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel("weight, %")
        axes.set_title(title, size=9, color=INK, parse_math=False)
        style_axes(axes)
        return _shown_in_notebooks(figure)
    pictures = [(title, INK, image)] if image is not None else []
    for (_, line), colour in zip(neighbours.iterrows(), colours, strict=True):
        pictures.append((f"{line['label']}  {line['weight']:.1%}", colour, images[line["id"]]))
    figure = new_figure(1.1 * len(pictures), 1.4)
    for axes, (text, colour, picture) in zip(
        figure.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True
    ):
        axes.imshow(picture, cmap="gray")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=colour, linewidth=1.6)
        axes.set_title(text, size=7, color=colour, parse_math=False)
    if image is None:
        figure.suptitle(title, size=9, color=INK)
    return _shown_in_notebooks(figure)


def _shown_in_notebooks(figure: "Figure") -> "Figure":
    """Let a notebook show the figure, also where pyplot, which tells it how, is not imported."""
    figure._repr_png_ = lambda: as_png(figure)  # type: ignore[attr-defined]
    return figure

"""Draw explanations of predictions as a PNG."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.model import Model
from attnknn.app.model.sentences import (
    describe_counterfactual,
    describe_decision,
    describe_nearest,
    describe_rest,
    percent,
)
from attnknn.core.figure import INK, SOFT, as_png, new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

_AGREES, _DIFFERS, _GREY = "#1b7f5c", "#b3422e", "#666666"
_COLUMNS = 14


def plot_explanations(
    model: Model,
    names: Sequence[str],
    queries: Examples,
    answers: Sequence[dict[str, Any]],
    changes: Sequence[dict[str, Any]],
) -> bytes:
    """Draw one panel a query: the query, its neighbours of largest weight, and the counterfactual.

    Args:
        names, queries: name and example of each query.
        answers, changes: from `Model.answers` and `Model.counterfactuals`.
    """
    panels = 1 + max(len(answer["neighbours"]) for answer in answers)  # the query and its neighbours
    width = max(6.4, 1.15 * panels + 0.4)
    if queries.images is not None:
        height = 2.2
    elif queries.table is not None:
        height = 1.6 + 0.2 * min(_COLUMNS, queries.table.shape[1])
    else:
        width, height = 7.0, 1.2 + 0.2 * panels
    figure = new_figure(width, height * len(answers) + 0.1)
    bands = figure.subfigures(len(answers), 1, squeeze=False)[:, 0]
    for i, (band, name, answer, change) in enumerate(zip(bands, names, answers, changes, strict=True)):
        band.set_facecolor("white")
        title = f"{name}: {answer['prediction']}, {percent(answer['confidence'])}"
        band.suptitle(title, x=0.01, ha="left", size=9.5, color=INK, weight="bold", parse_math=False)
        lines = [f"Besides, {describe_rest(answer)}. {describe_decision(answer)}", describe_nearest(answer)]
        lines.append(describe_counterfactual(answer, change))
        caption = "\n".join(fill(line, int(15 * width)) for line in lines if line)
        band.supxlabel(caption, x=0.01, ha="left", size=8, color=INK, parse_math=False)
        if queries.images is not None:
            _plot_images(band, model, queries.image(i), answer)
        elif queries.table is not None:
            _plot_columns(band, model, queries.columns(i), answer)
        else:
            _plot_weights(band, answer)
    return as_png(figure)


def _colour(neighbour: dict[str, Any], answer: dict[str, Any]) -> str:
    return _AGREES if neighbour["label"] == answer["prediction"] else _DIFFERS


def _plot_images(band: "SubFigure", model: Model, query: np.ndarray | None, answer: dict[str, Any]) -> None:
    """The query, then its neighbours with label and weight."""
    neighbours = answer["neighbours"]
    rows = model.positions([neighbour["id"] for neighbour in neighbours])
    axes = band.subplots(1, len(neighbours) + 1, squeeze=False)[0]
    for ax, image in zip(axes, [query, *(model.examples.image(row) for row in rows)], strict=True):
        ax.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(color=INK, linewidth=1.6)
    axes[0].set_title("query", size=8, color=INK)
    for ax, neighbour in zip(axes[1:], neighbours, strict=True):
        colour = _colour(neighbour, answer)
        ax.spines[:].set(color=colour)
        title = f"{neighbour['label']}  {percent(neighbour['weight'])}"
        ax.set_title(title, size=8, color=colour, parse_math=False)
        ax.set_xlabel(f"#{neighbour['id']}", size=7, color=_GREY)


def _plot_columns(band: "SubFigure", model: Model, query: dict[str, str | None], answer: dict[str, Any]) -> None:
    """The query and its neighbours side by side; values that differ are dark."""
    neighbours = answer["neighbours"]
    rows = model.rows_of([neighbour["id"] for neighbour in neighbours])
    names = list(query)[:_COLUMNS]
    axes = band.subplots()
    axes.set(xlim=(-1.6, len(rows) + 1), ylim=(len(names) + 2.2, -0.6))
    axes.axis("off")

    def write(x: float, y: float, value: object, limit: int = 15, **style: Any) -> None:
        text = "" if value is None else str(value)
        text = text if len(text) <= limit else text[: limit - 1] + "…"
        axes.text(x, y, text, **{"size": 8, "color": INK, "va": "center", "parse_math": False, **style})

    write(0, 0, "query", weight="bold")
    for j, neighbour in enumerate(neighbours):
        write(j + 1, 0, neighbour["label"], weight="bold", color=_colour(neighbour, answer))
        write(j + 1, 1, f"{percent(neighbour['weight'])}  #{neighbour['id']}", size=7, color=_GREY)
    axes.plot([-1.6, len(rows) + 1], [1.55, 1.55], color=SOFT, linewidth=0.8)
    for y, name in enumerate(names, 2):
        write(-1.6, y, name, limit=22, color=_GREY)
        write(0, y, query[name])
        for j, row in enumerate(rows):
            write(j + 1, y, row[name] or "–", color="#9a9a9a" if row[name] == query[name] else INK)
    if len(query) > len(names):
        write(-1.6, len(names) + 2, f"and {len(query) - len(names)} more columns", limit=99, size=7, color=_GREY)


def _plot_weights(band: "SubFigure", answer: dict[str, Any]) -> None:
    """A bar chart of the neighbours' weights."""
    neighbours, axes = answer["neighbours"], band.subplots()
    for y, n in enumerate(neighbours):
        axes.barh(y, 100 * n["weight"], color=_colour(n, answer), height=0.7)
    axes.set_yticks(range(len(neighbours)), [f"{n['label']}  #{n['id']}" for n in neighbours])
    axes.invert_yaxis()
    axes.set_xlabel("weight, %")
    style_axes(axes)

"""Why answers are as they are, as a picture."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.app.model.examples import Examples
from attnknn.app.model.model import Model
from attnknn.app.model.sentences import beside, percent, what_changes
from attnknn.core.figure import INK, SOFT, as_png, new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

_AGREES, _DIFFERS = "#1b7f5c", "#b3422e"
_COLUMNS = 14


def explained(
    model: Model,
    names: Sequence[str],
    asked: Examples,
    answers: Sequence[dict[str, Any]],
    changes: Sequence[dict[str, Any]],
) -> bytes:
    """A PNG with a band for each answer: the query, the neighbours that weigh most, and what would change the answer.

    Args:
        names: of the queries. asked: what they look like.
        answers, changes: of `Model.answers` and `Model.changes`.
    """
    most = max(len(answer["neighbours"]) for answer in answers)
    columns = 0 if asked.table is None else min(_COLUMNS, asked.table.shape[1])
    height = 2.2 if asked.images is not None else 1.6 + 0.2 * columns if columns else 1.2 + 0.2 * (most + 1)
    width = 1.15 * (most + 1) + 0.4 if asked.images is not None or columns else 7.0
    width = max(6.4, width)
    figure = new_figure(width, height * len(answers) + 0.1)
    bands = figure.subfigures(len(answers), 1, squeeze=False)[:, 0]
    for i, (band, name, answer, change) in enumerate(zip(bands, names, answers, changes, strict=True)):
        band.set_facecolor("white")
        said = f"{name}: {answer['prediction']}, {percent(answer['confidence'])}"
        band.suptitle(said, x=0.01, ha="left", size=9.5, color=INK, weight="bold", parse_math=False)
        said = f"Besides, {beside(answer)}.\n{what_changes(answer, change)}"
        said = "\n".join(fill(line, int(15 * width)) for line in said.splitlines())
        band.supxlabel(said, x=0.01, ha="left", size=8, color=INK, parse_math=False)
        if asked.images is not None:
            _pictures(band, model, asked.picture(i), answer)
        elif columns:
            _columns(band, model, asked.row(i), answer)
        else:
            _bars(band, answer)
    return as_png(figure)


def _colour(of: dict[str, Any], answer: dict[str, Any]) -> str:
    return _AGREES if of["label"] == answer["prediction"] else _DIFFERS


def _pictures(band: "SubFigure", model: Model, asked: np.ndarray | None, answer: dict[str, Any]) -> None:
    """The query, then its neighbours: label and weight over each."""
    neighbours = answer["neighbours"]
    pictures = [asked, *(model.examples.picture(at) for at in model.places([of["id"] for of in neighbours]))]
    for j, (axes, picture) in enumerate(zip(band.subplots(1, len(pictures), squeeze=False)[0], pictures, strict=True)):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        of = neighbours[j - 1] if j else None
        colour = INK if of is None else _colour(of, answer)
        axes.spines[:].set(color=colour, linewidth=1.6)
        said = "asked" if of is None else f"{of['label']}  {percent(of['weight'])}"
        axes.set_title(said, size=8, color=colour, parse_math=False)
        if of is not None:
            axes.set_xlabel(f"#{of['id']}", size=7, color="#666666")


def _columns(band: "SubFigure", model: Model, asked: dict[str, str | None], answer: dict[str, Any]) -> None:
    """A grid of texts: the query and its neighbours side by side; what differs is dark."""
    neighbours = answer["neighbours"]
    rows = model.rows_of([of["id"] for of in neighbours])
    names = list(asked)[:_COLUMNS]
    axes = band.subplots()
    axes.set(xlim=(-1.6, len(rows) + 1), ylim=(len(names) + 2.2, -0.6))
    axes.axis("off")

    def write(x: float, y: float, text: object, most: int = 15, **style: Any) -> None:
        shown = "" if text is None else str(text)
        shown = shown if len(shown) <= most else shown[: most - 1] + "…"
        axes.text(x, y, shown, **{"size": 8, "color": INK, "va": "center", "parse_math": False, **style})

    write(0, 0, "asked", weight="bold")
    for j, of in enumerate(neighbours):
        write(j + 1, 0, of["label"], weight="bold", color=_colour(of, answer))
        write(j + 1, 1, f"{percent(of['weight'])}  #{of['id']}", size=7, color="#666666")
    axes.plot([-1.6, len(rows) + 1], [1.55, 1.55], color=SOFT, linewidth=0.8)
    for y, name in enumerate(names, 2):
        write(-1.6, y, name, most=22, color="#666666")
        write(0, y, asked[name])
        for j, row in enumerate(rows):
            same = row[name] == asked[name]
            write(j + 1, y, row[name] or "–", color="#9a9a9a" if same else INK)
    if len(asked) > len(names):
        write(-1.6, len(names) + 2, f"and {len(asked) - len(names)} more columns", most=99, size=7, color="#666666")


def _bars(band: "SubFigure", answer: dict[str, Any]) -> None:
    """How much each neighbour weighs."""
    neighbours = answer["neighbours"]
    axes = band.subplots()
    at = np.arange(len(neighbours))
    weights = [100 * of["weight"] for of in neighbours]
    axes.barh(at, weights, color=[_colour(of, answer) for of in neighbours], height=0.7)
    axes.set_yticks(at, [f"{of['label']}  #{of['id']}" for of in neighbours])
    axes.invert_yaxis()
    axes.set_xlabel("weight, %")
    style_axes(axes)

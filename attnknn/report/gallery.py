"""Draw examples with their most heavily weighted neighbours, and list them in a table."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.report import plots
from attnknn.report.section import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Case = Mapping[str, Any]
_TITLES = {"wrong": "Confident error", "uncertain": "Uncertain", "hard": "Hard", "right": "Confident and right"}
_ACTUAL, _OTHER = "#0072b2", "#d55e00"  # neighbours of the query's own class, and of another
_FEATURES = 4  # shown for a table's row


def small_png(png: bytes) -> bytes:
    """The picture in at most 128 colours: a third of the bytes, visually the same."""
    from PIL import Image

    out = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def read_picture(path: Path, item: str) -> np.ndarray:
    """The pixels of a PNG that the stage `item` wrote.

    Raises:
        InputError: it is missing or damaged.
    """
    from PIL import Image

    try:
        return np.asarray(Image.open(path))
    except OSError as error:
        raise InputError(f"{path}: {error}; make it again with `dvc repro --force {item}`") from None


def _share(value: float) -> str:
    """A weight or a probability in two digits, as .07."""
    return "0" if value < 0.0005 else "< .01" if value < 0.005 else f"{value:.2f}".removeprefix("0")


def shortened(name: str, width: int = 11) -> str:
    """A class or feature in at most `width` letters."""
    return name if len(name) <= width else name[: width - 1] + "…"


def title(case: Case) -> str:
    right = case["actual"] == case["predicted"]
    return f"{_TITLES[case['kind']]}: {case['actual']}" + ("" if right else f", predicted {case['predicted']}")


def _details(case: Case) -> list[str]:
    others = f"{_share(case['rest'])} on the other neighbours"
    return [
        ", ".join(f"{shortened(t['class'], 14)} {_share(t['probability'])}" for t in case["top"]),
        f"{_share(case['null'])} of the weight on no neighbour, {others}",
        f"{case['disagreement']:.0%} of the neighbours are of another class",
    ]


def _colour(case: Case, neighbour: Mapping[str, Any] | None) -> str:
    return plots.INK if neighbour is None else _ACTUAL if neighbour["class"] == case["actual"] else _OTHER


def _head(case: Case, height: float) -> tuple[Any, Any]:
    """A figure with the title and the details, and the share of its height that these take."""
    figure = plots.new_figure(3.4, height)
    figure.set_layout_engine("none")
    figure.text(0.02, 1 - 0.06 / height, title(case), size=8.5, weight="bold", color=plots.INK, va="top")
    for i, line in enumerate(_details(case)):
        figure.text(0.02, 1 - (0.24 + 0.135 * i) / height, line, size=7, color="#555555", va="top")
    return figure, 0.72 / height


def picture_case(case: Case, strip: np.ndarray) -> bytes:
    """An image with its neighbours; class above, weight and the weight of distance weighting below each.

    Args:
        strip: (H, W·(1 + n)) or with colours, the query first.
    """
    neighbours = case["neighbours"]
    tiles = np.split(strip, 1 + len(neighbours), axis=1)
    columns = min(4, max(1, len(neighbours)))
    lines = max(1, -(-len(neighbours) // columns))
    height = 0.78 + 0.84 * lines
    figure, used = _head(case, height)
    space = {"left": 0.02, "right": 0.98, "top": 1 - used - 0.06 / height, "bottom": 0.15 / height}
    grid = figure.add_gridspec(lines, columns + 2, hspace=0.5, **space)

    def show(axes: "Axes", tile: np.ndarray, colour: str) -> None:
        axes.imshow(tile, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=colour, linewidth=1.6)

    query = figure.add_subplot(grid[:, :2])
    show(query, tiles[0], plots.INK)
    query.set_title("query", size=7.5, pad=2, color=plots.INK)
    for i, neighbour in enumerate(neighbours):
        axes = figure.add_subplot(grid[i // columns, 2 + i % columns])
        show(axes, tiles[1 + i], _colour(case, neighbour))
        axes.set_title(shortened(neighbour["class"]), size=6.5, pad=2, color=_colour(case, neighbour))
        weights = f"{_share(neighbour['weight'])} ({_share(neighbour['distance_weight'])})"
        axes.set_xlabel(weights, size=6.5, labelpad=1.5)
    return small_png(plots.as_png(figure))


def table_case(case: Case) -> bytes:
    """A table's row with its neighbours: weights as bars, and the features that differ most."""
    neighbours, names = case["neighbours"], case["features"][:_FEATURES]
    height = 0.74 + 0.4 + 0.165 * (1 + len(neighbours))
    figure, used = _head(case, height)
    axes = figure.add_axes((0.02, 0.02, 0.96, 1 - used - 0.06))
    axes.set(xlim=(0, 1), ylim=(len(neighbours) + 0.6, -2.7))
    axes.axis("off")
    left, step = 0.49, 0.51 / max(1, len(names))
    most = max([1e-9, *(max(n["weight"], n["distance_weight"]) for n in neighbours)])
    axes.text(0.24, -0.75, "weight", size=6.5, color="#555555", va="bottom")
    for j, name in enumerate(names):
        wrapped = "\n".join(textwrap.wrap(name.replace("_", " "), 10)[:3])
        axes.text(left + (j + 1) * step, -0.75, wrapped, size=5.8, color="#555555", ha="right", va="bottom")
    for i, values in enumerate(case["values"][: 1 + len(neighbours)]):
        neighbour = neighbours[i - 1] if i else None
        label, weight = (neighbour["class"], "normal") if neighbour else ("query", "bold")
        colour = _colour(case, neighbour)
        axes.text(0, i, shortened(label, 13), size=7, color=colour, weight=weight, va="center")
        if neighbour:
            axes.barh(i, 0.14 * neighbour["weight"] / most, 0.6, left=0.24, color=colour, alpha=0.75)
            mark = 0.24 + 0.14 * neighbour["distance_weight"] / most
            axes.plot([mark, mark], [i - 0.38, i + 0.38], color=plots.INK, lw=1)
            axes.text(0.475, i, _share(neighbour["weight"]), size=6.5, va="center", ha="right", color=plots.INK)
        for j, text in enumerate(values[: len(names)]):
            axes.text(left + (j + 1) * step, i, shortened(text, 9), size=6.5, va="center", ha="right", weight=weight)
    axes.axhline(0.5, color=plots.SOFT, lw=0.6)
    return small_png(plots.as_png(figure))


def cases_table(cases: Sequence[Case]) -> Table:
    """All cases as a table."""
    rows: list[list[str | Cell]] = []
    for kind, name in _TITLES.items():
        group = [c for c in cases if c["kind"] == kind]
        if group:
            rows.append([name])
        for c in group:
            neighbours = ", ".join(
                f"{n['class']} {_share(n['weight'])} ({_share(n['distance_weight'])}; row {n['row']})"
                for n in c["neighbours"]
            )
            features = zip(c.get("features", []), c["values"][0] if c.get("values") else [], strict=True)
            values = "; ".join(f"{feature} {value}" for feature, value in features)
            top = ", ".join(f"{t['class']} {_share(t['probability'])}" for t in c["top"])
            rows.append([str(c["row"]), c["actual"], top, neighbours, _share(c["null"]), values])
    head = ["row", "actual", "answer", "neighbours: weight (distance weighting's)", "no neighbour", "features"]
    if not any(c.get("features") for c in cases):
        head, rows = head[:-1], [row[:-1] if len(row) > 1 else row for row in rows]
    return Table("cases", "Examples", head, rows)


def read_cases(folder: Path, item: str) -> tuple[list[dict[str, Any]], list[tuple[str, bytes]]]:
    """The cases of one gallery, and their pictures with alternative texts.

    Args:
        folder: written by the stage `explain` for `item`, <dataset>-<seed>.

    Raises:
        InputError: a file is missing or damaged.
    """
    cases = read_json(folder / "gallery.json")["cases"]
    pictures = []
    for case in cases:
        image = case.get("picture")
        png = picture_case(case, read_picture(folder / image, f"explain@{item}")) if image else table_case(case)
        heaviest = ", ".join(f"{n['class']} {_share(n['weight'])}" for n in case["neighbours"][:3])
        pictures.append((f"test row {case['row']}. {title(case)}. Heaviest neighbours: {heaviest}", png))
    return cases, pictures

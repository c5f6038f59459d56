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
    pass

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


def _two_digits(value: float) -> str:
    """A weight or a probability in two digits, as .07."""
    return "0" if value < 0.0005 else "< .01" if value < 0.005 else f"{value:.2f}".removeprefix("0")


def shortened(name: str, width: int = 11) -> str:
    """A class or feature in at most `width` letters."""
    return name if len(name) <= width else name[: width - 1] + "…"


def title(case: Case) -> str:
    right = case["actual"] == case["predicted"]
    return f"{_TITLES[case['kind']]}: {case['actual']}" + ("" if right else f", predicted {case['predicted']}")


def _details(case: Case) -> list[str]:
    others = f"{_two_digits(case['rest'])} on the other neighbours"
    return [
        ", ".join(f"{shortened(t['class'], 14)} {_two_digits(t['probability'])}" for t in case["top"]),
        f"{_two_digits(case['null'])} of the weight on no neighbour, {others}",
        f"{case['disagreement']:.0%} of the neighbours are of another class",
    ]


def _colour(case: Case, neighbour: Mapping[str, Any] | None) -> str:
    return plots.INK if neighbour is None else _ACTUAL if neighbour["class"] == case["actual"] else _OTHER


def _titled_figure(case: Case, height: float) -> tuple[Any, Any]:
    """A figure with the title and the details, and the share of its height that these take."""
    figure = plots.new_figure(3.4, height, layout=None)
    figure.text(0.02, 1 - 0.06 / height, title(case), size=8.5, weight="bold", color=plots.INK, va="top")
    for i, line in enumerate(_details(case)):
        figure.text(0.02, 1 - (0.24 + 0.135 * i) / height, line, size=7, color="#555555", va="top")
    return figure, 0.72 / height


def picture_case(case: Case, strip: np.ndarray) -> bytes:
    """An image with its neighbours; class above, weight and the weight of distance weighting below each.

    Args:
        strip: (H, W·(1 + n)) or with colours, the query first.
    """
    from matplotlib.patches import Rectangle

    neighbours = case["neighbours"]
    tiles = np.split(strip, 1 + len(neighbours), axis=1)
    columns, lines = 4, max(1, -(-len(neighbours) // 4))
    height = 0.78 + 0.84 * lines
    figure, _ = _titled_figure(case, height)
    # One set of axes in inches for all images: axes take longer to draw than images.
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")

    def show(tile: np.ndarray, x: float, y: float, size: float, colour: str) -> float:
        """Draw an image around (x, y), its longer side of this size; return half of its height."""
        up, right = size / 2 / max(tile.shape[:2]) * np.array(tile.shape[:2])
        box = (x - right, x + right, y - up, y + up)
        axes.imshow(tile, cmap="gray", vmin=0, vmax=255, interpolation="nearest", extent=box, aspect="auto")
        axes.add_patch(Rectangle((x - right, y - up), 2 * right, 2 * up, fill=False, color=colour, lw=1.6))
        return up

    point, room = 1 / 72, 0.84 * lines - 0.15
    middle, step = 0.15 + room / 2, room / (1.5 * lines - 0.5)
    up = show(tiles[0], 0.581, middle, min(1.026, room), plots.INK)
    axes.text(0.581, middle + up + 2 * point, "query", size=7.5, color=plots.INK, ha="center")
    for i, neighbour in enumerate(neighbours):
        x, y = 1.42 + 0.5596 * (i % columns), height - 0.78 - step * (0.5 + 1.5 * (i // columns))
        colour = _colour(case, neighbour)
        up = show(tiles[1 + i], x, y, 0.4663, colour)
        axes.text(x, y + up + 2 * point, shortened(neighbour["class"]), size=6.5, color=colour, ha="center")
        weights = f"{_two_digits(neighbour['weight'])} ({_two_digits(neighbour['distance_weight'])})"
        axes.text(x, y - up - 1.5 * point, weights, size=6.5, ha="center", va="top")
    axes.set(xlim=(0, 3.4), ylim=(0, height))
    return small_png(plots.as_png(figure))


def table_case(case: Case) -> bytes:
    """A table's row with its neighbours: weights as bars, and the features that differ most."""
    neighbours, names = case["neighbours"], case["features"][:_FEATURES]
    height = 0.74 + 0.4 + 0.165 * (1 + len(neighbours))
    figure, used = _titled_figure(case, height)
    axes = figure.add_axes((0.02, 0.02, 0.96, 1 - used - 0.06))
    axes.set(xlim=(0, 1), ylim=(len(neighbours) + 0.6, -2.7))
    axes.axis("off")
    left, step = 0.49, 0.51 / max(1, len(names))
    largest = max([1e-9, *(max(n["weight"], n["distance_weight"]) for n in neighbours)])
    axes.text(0.24, -0.75, "weight", size=6.5, color="#555555", va="bottom")
    for j, name in enumerate(names):
        wrapped = "\n".join(textwrap.wrap(name.replace("_", " "), 10)[:3])
        axes.text(left + (j + 1) * step, -0.75, wrapped, size=5.8, color="#555555", ha="right", va="bottom")
    rows, colours = np.arange(1, 1 + len(neighbours)), [_colour(case, n) for n in neighbours]
    weights, marks = (0.14 / largest * np.array([n[key] for n in neighbours]) for key in ("weight", "distance_weight"))
    axes.barh(rows, weights, 0.6, left=0.24, color=colours, alpha=0.75)
    axes.vlines(0.24 + marks, rows - 0.38, rows + 0.38, color=plots.INK, lw=1)
    for i, values in enumerate(case["values"][: 1 + len(neighbours)]):
        neighbour = neighbours[i - 1] if i else None
        label, weight = (neighbour["class"], "normal") if neighbour else ("query", "bold")
        colour = _colour(case, neighbour)
        axes.text(0, i, shortened(label, 13), size=7, color=colour, weight=weight, va="center")
        if neighbour:
            axes.text(0.475, i, _two_digits(neighbour["weight"]), size=6.5, va="center", ha="right", color=plots.INK)
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
                f"{n['class']} {_two_digits(n['weight'])} ({_two_digits(n['distance_weight'])}; row {n['row']})"
                for n in c["neighbours"]
            )
            features = zip(c.get("features", []), c["values"][0] if c.get("values") else [], strict=True)
            values = "; ".join(f"{feature} {value}" for feature, value in features)
            top = ", ".join(f"{t['class']} {_two_digits(t['probability'])}" for t in c["top"])
            rows.append([str(c["row"]), c["actual"], top, neighbours, _two_digits(c["null"]), values])
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
        png = picture_case(case, read_picture(folder / image, f"evaluate@{item}")) if image else table_case(case)
        heaviest = ", ".join(f"{n['class']} {_two_digits(n['weight'])}" for n in case["neighbours"][:3])
        pictures.append((f"test row {case['row']}. {title(case)}. Heaviest neighbours: {heaviest}", png))
    return cases, pictures

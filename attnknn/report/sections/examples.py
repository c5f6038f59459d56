"""Examples with their neighbours of largest weight, and the most frequent confusions."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.report.results import Run, by_dataset, joined
from attnknn.report.tables import Row, Section, Table

_KINDS = {"wrong": "Confident error", "uncertain": "Least confident", "hard": "Hard", "right": "Confident and right"}
_FEATURES, _NEIGHBOURS, _ROWS = 4, 8, 4  # shown
_CONFUSIONS = 8


def _share(value: float) -> str:
    """A weight or a probability in two digits, as .07."""
    return "0" if value < 0.0005 else "< .01" if value < 0.005 else f"{value:.2f}".removeprefix("0")


def png_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def read_tiles(path: Path, count: int, item: str) -> list[str]:
    """The images of a strip, side by side in one PNG, as data URIs.

    Raises:
        InputError: the PNG, which the stage `item` wrote, is missing or damaged.
    """
    from PIL import Image

    try:
        strip = Image.open(path).convert("RGB")
    except OSError as error:
        raise InputError(f"{path}: {error}; make it again with `dvc repro --force {item}`") from None
    width, tiles = strip.width // count, []
    for i in range(count):
        buffer = io.BytesIO()
        strip.crop((i * width, 0, (i + 1) * width, strip.height)).save(buffer, "PNG", optimize=True)
        tiles.append(png_uri(buffer.getvalue()))
    return tiles


def _case(case: Mapping[str, Any], folder: Path, item: str) -> Markup:
    """One example as HTML: the query, then its neighbours with class and weight (that of distance weighting)."""
    neighbours = case["neighbours"][:_NEIGHBOURS]
    top = ", ".join(f"{t['class']} {_share(t['probability'])}" for t in case["top"][:3])
    parts = [
        Markup(
            "<figure class='case'><figcaption><b>{}: {}</b> {}<br><small>{}; weight of the class prior {}</small>"
            "</figcaption><div class='tiles'>"
        ).format(
            _KINDS[case["kind"]],
            case["actual"],
            "" if case["actual"] == case["predicted"] else f"predicted {case['predicted']}",
            top,
            _share(case["null"]),
        )
    ]
    tile = Markup("<span class='tile {}'>{}<small>{}<br>{}</small></span>")
    names = [("query", "", "")] + [
        (
            "same" if n["class"] == case["actual"] else "other",
            n["class"],
            f"{_share(n['weight'])} ({_share(n['distance_weight'])})",
        )
        for n in neighbours
    ]
    if image := case.get("picture"):
        tiles = read_tiles(folder / image, 1 + len(case["neighbours"]), item)
        for uri, (kind, label, weight) in zip(tiles, names, strict=False):
            parts.append(tile.format(kind, Markup("<img src='{}' alt=''>").format(uri), label or "query", weight))
        return Markup("").join(parts) + Markup("</div></figure>")
    head = Markup("").join(Markup("<th>{}</th>").format(f) for f in case["features"][:_FEATURES])
    parts.append(Markup("<table><tr><th></th><th>weight</th>{}</tr>").format(head))
    for (kind, label, weight), values in zip(names[: 1 + _ROWS], case["values"], strict=False):
        cells = Markup("").join(Markup("<td>{}</td>").format(v) for v in values[:_FEATURES])
        parts.append(
            Markup("<tr class='{}'><th>{}</th><td>{}</td>{}</tr>").format(kind, label or "query", weight, cells)
        )
    return Markup("").join(parts) + Markup("</table></div></figure>")


def examples(runs: Sequence[Run]) -> Section:
    """Examples of the first seed of each dataset; none where their folder is not there."""
    html, lines = Markup(), []
    for dataset, own in by_dataset(runs, "intervals").items():
        folder = own[0].folder("gallery")
        if folder.is_dir():
            item = f"evaluate@{folder.name}"
            cases = [_case(case, folder, item) for case in read_json(folder / "gallery.json")["cases"]]
            html += Markup("<div class='cases' aria-label='{}'>{}</div>").format(dataset, Markup("").join(cases))
    confusion = joined(runs, "confusion")
    if len(confusion):
        confusion = confusion[confusion["method"] == "attention"]
        for dataset, own in confusion.groupby("dataset", sort=False):
            rows = own.groupby(["actual", "predicted"], sort=False)["count"].sum().reset_index()
            sizes = rows.groupby("actual")["count"].sum()
            wrong = rows[(rows["actual"] != rows["predicted"]) & (rows["count"] > 0)]
            for row in wrong.nlargest(_CONFUSIONS, "count").to_dict("records"):
                lines.append(
                    [
                        str(dataset),
                        str(row["actual"]),
                        str(row["predicted"]),
                        f"{row['count']:,} of {sizes[row['actual']]:,}",
                    ]
                )
    head: Row = ["dataset", "actual", "predicted", "test rows of the class"]
    return Section(
        "explain",
        "Examples and confusions",
        "Neighbours of largest weight, blue of the query's own class and orange of another; in brackets the weight by "
        "tuned distance weighting.",
        [],
        [Table("confusions", "Most frequent confusions of attention", list(map(str, head)), lines)] if lines else [],
        "dvc repro evaluate",
        html,
    )

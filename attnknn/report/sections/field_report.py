"""Reconstruction of images by neural fields, and a t-SNE of every representation."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.core.files import read_json
from attnknn.report import plots
from attnknn.report.gallery import read_picture, small_png
from attnknn.report.results import Run, joined, read_csv
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.sections.explain import HUES
from attnknn.report.sections.probe import MODES, NAMES
from attnknn.report.tables import by_dataset, fixed

TABLES: dict[str, tuple[str, ...]] = {
    "field_psnr": ("mode", "source", "baseline", "value", "low", "high"),
    "field_training": ("variant", "epoch", "loss", "mse", "contrast", "val_psnr"),
}
_TSNE = ("representation", "x", "y", "actual")
MEAN, NEAREST, NEIGHBOURS = "mean image", "nearest point", "nearest images"
COLOURS = {"full": "#0072b2", "sparse": "#009e73", "full_nce": "#d55e00", "sparse_nce": "#e69f00"}
_SHORT = {
    "image": "image",
    "known": "known",
    MEAN: "mean",
    NEAREST: "nearest\npoint",
    NEIGHBOURS: "nearest\nimages",
    "full": "full",
    "sparse": "sparse",
    "full_nce": "full\n+ NCE",
    "sparse_nce": "sparse\n+ NCE",
}


def strip_picture(columns: Sequence[str], strip: np.ndarray, mode: str) -> bytes:
    """Test images and their reconstructions, one column per source.

    Args:
        columns: `<mode>:<source>` of every column of the strip.
        strip: (P·H, K·W, 3).
    """
    tiles = dict(zip(columns, np.split(strip, len(columns), axis=1), strict=True))
    shown = {name.partition(":")[2]: tile for name, tile in tiles.items() if name.startswith(f"{mode}:")}
    height = 0.62 + 3.2 / len(shown) * strip.shape[0] / (strip.shape[1] // len(columns))
    figure = plots.new_figure(3.4, height, layout=None)
    title = f"Test images, {MODES[mode]}"
    figure.text(0.02, 1 - 0.05 / height, title, size=9, weight="bold", color=plots.INK, va="top")
    grid = figure.add_gridspec(1, len(shown), left=0.02, right=0.98, top=1 - 0.56 / height, bottom=0.02, wspace=0.08)
    for i, (source, tile) in enumerate(shown.items()):
        axes = figure.add_subplot(grid[0, i])
        axes.imshow(tile, cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="auto")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(_SHORT[source], size=7, pad=3, color=COLOURS.get(source, plots.INK))
    return plots.as_png(figure)


def training_picture(training: pd.DataFrame) -> bytes:
    """PSNR on val images over epochs, one line per field; `sparse_nce` continues where `sparse` ends."""
    lines = []
    for variant, colour in COLOURS.items():
        rows = training[training["variant"] == variant]
        start = training.loc[training["variant"] == "sparse", "epoch"].max() if variant == "sparse_nce" else 0
        rows = rows.assign(x=start + rows["epoch"], value=rows["val_psnr"])
        lines.append(plots.Line(_SHORT[variant].replace("\n", " "), colour, rows))
    label = "PSNR on val images, dB\n(sparse: of unknown pixels)"
    return plots.line_plot(lines, "Reconstruction in training", "epoch", label)


def tsne_picture(points: pd.DataFrame) -> bytes:
    """The same test rows in every representation, coloured by class."""
    names = [name for name in NAMES if name in set(points["representation"])]
    classes = sorted(dict.fromkeys(points["actual"].astype(str)))
    lines = -(-len(names) // 2)
    figure = plots.new_figure(3.4, 0.5 + 1.62 * lines)
    for i, name in enumerate(names):
        axes = figure.add_subplot(lines, 2, i + 1)
        rows = points[points["representation"] == name]
        colours = [HUES[classes.index(str(actual)) % len(HUES)] for actual in rows["actual"]]
        axes.scatter(rows["x"], rows["y"], 4, colours, lw=0, alpha=0.8)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(plots.SOFT)
        axes.set_title(NAMES[name], size=7.5, pad=3, color=plots.INK)
    text = f"t-SNE of {len(points) // max(1, len(names)):,} test rows, by class"
    figure.suptitle(text, x=0.01, ha="left", size=10, weight="bold", color=plots.INK)
    return small_png(plots.as_png(figure))


def _table(psnr: pd.DataFrame) -> Table:
    """PSNR of every source in both modes, and its difference from reconstructions without a field."""
    rows: list[Row] = []
    for mode, words in MODES.items():
        rows.append([words.capitalize()])
        of_mode = psnr[psnr["mode"] == mode]
        for source in dict.fromkeys(of_mode["source"]):
            line: list[str | Cell] = [NAMES.get(str(source), str(source))]
            for baseline in ("", MEAN, NEAREST, NEIGHBOURS):
                scores = of_mode[(of_mode["source"] == source) & (of_mode["baseline"] == baseline)]
                if scores.empty:
                    line.append("")
                    continue
                value, low, high = (
                    fixed(v, 2, bool(baseline))
                    for v in (scores["value"].mean(), scores["low"].min(), scores["high"].max())
                )
                line.append(Cell(value, f"{low} … {high}"))
            rows.append(line)
    head = ["reconstruction", "PSNR, dB", "above the mean image", "above the nearest point", "above the nearest images"]
    note = "Of all pixels where the whole image is known, else of the unknown pixels. The nearest images are the mean "
    note += "of the ten bank images nearest at the known points."
    return Table("psnr", "PSNR on test images", head, rows, note, folded=False)


def _pictures(run: Run, folder: Path) -> list[tuple[str, bytes]]:
    item = f"{run.dataset}-{run.seed}"
    columns = read_json(folder / "field_pictures" / item / "pictures.json")["columns"]
    strip = read_picture(folder / "field_pictures" / item / "reconstructions.png", f"field_report@{item}")
    return [
        (f"reconstructions of test images, {words}", strip_picture(columns, strip, m)) for m, words in MODES.items()
    ]


def _part(runs: Sequence[Run], folder: Path | None) -> Part:
    psnr = joined(runs, "field_psnr").fillna({"baseline": ""})  # empty: the PSNR itself
    drawn = _pictures(runs[0], folder) if folder else []
    drawn.append(("PSNR on val images in training", training_picture(joined(runs, "field_training"))))
    if folder:
        points = folder / "field_pictures" / f"{runs[0].dataset}-{runs[0].seed}" / "tsne.csv"
        drawn.append(("t-SNE by every representation", tsne_picture(read_csv(points, _TSNE))))
    return Part(runs[0].dataset, drawn, [_table(psnr)])


def section(runs: Sequence[Run], folder: Path | None) -> Section:
    """Reconstructions by fields, and maps of representations.

    Args:
        folder: `field_pictures/<dataset>-<seed>` in it is read. None leaves the pictures out.

    Raises:
        InputError: a picture is missing or damaged.
    """
    return Section(
        "field_report",
        "Reconstruction of images by neural fields",
        "A field encodes points of an image into a few latents and predicts any coordinate from them. How accurate is "
        "it on test images?",
        by_dataset(runs, lambda group: _part(group, folder), "field_psnr"),
        "Each field is out of distribution in the mode it was not trained in. Blue pixels are unknown; in a t-SNE "
        "distances between clusters mean nothing.",
        "dvc exp run -S +train_field.sampler=batch",
    )

"""How fields reconstruct images, and how the representations lie in the plane, in the report."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnknn.core.errors import InputError
from attnknn.core.files import read_json
from attnknn.report import plots as pictures
from attnknn.report.gallery import small_png
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.sections.explain import HUES
from attnknn.report.sections.probe import MODES, NAMES
from attnknn.report.tables import by_dataset, fixed

TABLES: dict[str, tuple[str, ...]] = {
    "field_psnr": ("mode", "source", "baseline", "value", "low", "high"),
    "field_training": ("variant", "epoch", "loss", "mse", "contrast", "val_psnr"),
    "field_tsne": ("representation", "x", "y", "actual"),
}
MEAN, NEAREST, NEIGHBOURS = "mean image", "nearest point", "nearest images"
COLOURS = {"full": "#0072b2", "sparse": "#009e73", "full_nce": "#d55e00", "sparse_nce": "#e69f00"}
_SHORT = {
    "image": "image",
    "known": "known",
    MEAN: "mean",
    NEAREST: "near\npoint",
    "full": "full",
    "sparse": "sparse",
}
_SHORT |= {NEIGHBOURS: "near\nimages", "full_nce": "full\n+ NCE", "sparse_nce": "sparse\n+ NCE"}


def _above(psnr: pd.DataFrame, mode: str, source: str, baseline: str) -> str:
    row = psnr[(psnr["mode"] == mode) & (psnr["source"] == source) & (psnr["baseline"] == baseline)]
    low, high = fixed(row["low"].min(), 1, True), fixed(row["high"].max(), 1, True)
    return f"{fixed(row['value'].mean(), 1, True)} dB ({low} … {high})"


def sentence(psnr: pd.DataFrame) -> str:
    """How far reconstructions are above what needs no field."""
    found = set(psnr["source"])
    lines = []
    whole = [f"{NAMES[name]} {_above(psnr, 'full', name, MEAN)}" for name in ("full", "full_nce") if name in found]
    if whole:
        lines.append(f"PSNR of test images, known as a whole, above that of the mean image: {', '.join(whole)}.")
    sparse = [name for name in ("sparse", "sparse_nce") if name in found and NEAREST in found]
    if sparse:
        said = [
            f"{NAMES[name]} " + ", ".join(_above(psnr, "sparse", name, of) for of in (NEAREST, MEAN, NEIGHBOURS))
            for name in sparse
        ]
        lines.append(
            "PSNR of pixels that were not shown, above taking the nearest known point, above the mean image, and above "
            f"the mean of the ten bank images that are nearest at the known points: {'; '.join(said)}."
        )
    return "\n".join(lines)


def strip_picture(columns: Sequence[str], strip: np.ndarray, mode: str) -> bytes:
    """Test images and what is made of them, a column a source.

    Args:
        columns: `<mode>:<source>` of every column of the strip.
        strip: (P·H, K·W, 3).
    """
    tiles = np.split(strip, len(columns), axis=1)
    shown = [(name.partition(":")[2], tile) for name, tile in zip(columns, tiles, strict=True)]
    shown = [of for name, of in zip(columns, shown, strict=True) if name.startswith(f"{mode}:")]
    height = 0.62 + 3.2 / len(shown) * strip.shape[0] / tiles[0].shape[1]
    figure = pictures.new_figure(3.4, height)
    figure.set_layout_engine("none")
    title = f"Test images, {MODES[mode]}"
    figure.text(0.02, 1 - 0.05 / height, title, size=9, weight="bold", color=pictures.INK, va="top")
    grid = figure.add_gridspec(1, len(shown), left=0.02, right=0.98, top=1 - 0.56 / height, bottom=0.02, wspace=0.08)
    for place, (source, tile) in enumerate(shown):
        axes = figure.add_subplot(grid[0, place])
        axes.imshow(tile, cmap="gray", vmin=0, vmax=255, interpolation="nearest", aspect="auto")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(_SHORT[source], size=7, pad=3, color=COLOURS.get(source, pictures.INK))
    return pictures.as_png(figure)


def training_picture(training: pd.DataFrame) -> bytes:
    """PSNR on val images over epochs, a line a field; `sparse_nce` goes on where `sparse` ends."""
    figure = pictures.new_figure(3.4, 2.6)
    axes, ends = figure.subplots(), []
    for variant, colour in COLOURS.items():
        of = training[training["variant"] == variant]
        before = training.loc[training["variant"] == "sparse", "epoch"].max() if variant == "sparse_nce" else 0
        for _, line in of.groupby("seed"):
            axes.plot(before + line["epoch"], line["val_psnr"], color=colour, lw=1.4, marker="o", ms=2.5)
        if len(of):
            ends.append((float(of.loc[of["epoch"] == of["epoch"].max(), "val_psnr"].mean()), variant, colour))
    named = [(value, _SHORT[variant].replace("\n", " "), colour) for value, variant, colour in ends]
    axes.set(xlabel="epoch", ylabel="PSNR on val images, dB\n(sparse: of what was not shown)")
    axes.set_title("Reconstruction in training", loc="left", size=10, weight="bold", color=pictures.INK)
    axes.locator_params(axis="x", integer=True)
    pictures.style_axes(axes)
    pictures.name_ends(axes, named)
    return pictures.as_png(figure)


def tsne_picture(points: pd.DataFrame) -> bytes:
    """The same test rows by every representation, coloured by class."""
    names = [name for name in NAMES if name in set(points["representation"])]
    classes = sorted(dict.fromkeys(points["actual"].astype(str)))
    lines = -(-len(names) // 2)
    figure = pictures.new_figure(3.4, 0.5 + 1.62 * lines)
    for place, name in enumerate(names):
        axes = figure.add_subplot(lines, 2, place + 1)
        of = points[points["representation"] == name]
        colours = [HUES[classes.index(str(actual)) % len(HUES)] for actual in of["actual"]]
        axes.scatter(of["x"], of["y"], 4, colours, lw=0, alpha=0.8)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(pictures.SOFT)
        axes.set_title(NAMES[name], size=7.5, pad=3, color=pictures.INK)
    rows = len(points) // max(1, len(names))
    figure.suptitle(
        f"t-SNE of {rows:,} test rows, coloured by class", x=0.02, ha="left", size=9, weight="bold", color=pictures.INK
    )
    return small_png(pictures.as_png(figure))


def _table(psnr: pd.DataFrame) -> Table:
    """PSNR of every source in both modes, and what it is above reconstructions without a field."""
    rows: list[Row] = []
    for mode, words in MODES.items():
        rows.append([words.capitalize()])
        of = psnr[psnr["mode"] == mode]
        for source in dict.fromkeys(of["source"]):
            line: list[str | Cell] = [NAMES.get(str(source), str(source))]
            for baseline in ("", MEAN, NEAREST, NEIGHBOURS):
                one = of[(of["source"] == source) & (of["baseline"] == baseline)]
                sign, digits = bool(baseline), 2
                ends = [fixed(end, digits, sign) for end in (one["low"].min(), one["high"].max())] if len(one) else []
                line.append(Cell(fixed(one["value"].mean(), digits, sign), " … ".join(ends)) if len(one) else "")
            rows.append(line)
    head = ["reconstruction", "PSNR, dB", "above the mean image", "above the nearest point"]
    head.append("above the nearest images")
    note = "Of all pixels where the whole image is known, else of those that were not shown."
    return Table("psnr", "PSNR on test images", head, rows, note, folded=False)


def _pictures(run: Run, folder: Path) -> list[tuple[str, bytes]]:
    """The reconstructions that the stage kept.

    Raises:
        InputError: a picture is missing or damaged.
    """
    from PIL import Image

    item = f"{run.dataset}-{run.seed}"
    columns = read_json(folder / "field_pictures" / item / "pictures.json")["columns"]
    path = folder / "field_pictures" / item / "reconstructions.png"
    try:
        strip = np.asarray(Image.open(path))
    except OSError as error:
        raise InputError(f"{path}: {error}; make it again with `dvc repro --force field_report@{item}`") from None
    return [
        (f"reconstructions of test images, {words}", strip_picture(columns, strip, m)) for m, words in MODES.items()
    ]


def _part(runs: Sequence[Run], folder: Path | None) -> Part:
    psnr = joined(runs, "field_psnr").fillna({"baseline": ""})  # of the PSNR itself
    drawn = _pictures(runs[0], folder) if folder else []
    drawn.append(("PSNR on val images in training", training_picture(joined(runs, "field_training"))))
    if "field_tsne" in runs[0].tables:
        drawn.append(("t-SNE by every representation", tsne_picture(runs[0].tables["field_tsne"])))
    return Part(runs[0].dataset, sentence(psnr), drawn, [_table(psnr)])


def section(runs: Sequence[Run], folder: Path | None) -> Section:
    """Reconstructions by fields, and maps of representations.

    Args:
        folder: of the plots; its `field_pictures/<dataset>-<seed>` is read, which DVC holds. None leaves them out.
    """
    mine = [run for run in runs if "field_psnr" in run.tables]
    return Section(
        "field_report",
        "What fields make of images",
        "A field reads points of an image into a few latents, and answers for any coordinate from these. How true is "
        "what it makes of test images, all of whose points it is shown, or some?",
        by_dataset(mine, lambda of: _part(of, folder)),
        "Intervals are those of the bootstrap over test images. Fields that learnt from whole images were never asked "
        "for what they were not shown, and those that learnt from points never shown all of them: the other mode is "
        "foreign to each. Blue pixels are those that are not known. A t-SNE keeps close what is close; distances "
        "between clusters in it mean nothing.",
        "dvc exp run -S train_field.sampler=batch",
    )

"""Draw suspicious labels as a PNG."""

import numpy as np
import pandas as pd

from attnknn.app.model.examples import Examples
from attnknn.classifier.audit import expected_precision
from attnknn.core.figure import INK, as_png, new_figure, style_axes

_COLUMNS, _MAX_PICTURES = 8, 64


def plot_issues(issues: pd.DataFrame, examples: Examples, top: int) -> bytes:
    """Draw the first pictures by label quality, given → predicted label; of other rows the expected precision.

    Args:
        issues: of `find_label_issues`, in the order of the examples.
    """
    order = np.argsort(issues["label_quality"].to_numpy(), kind="stable")
    if examples.images is None or top == 0:
        return _plot_precision(issues)
    shown = order[: min(top, _MAX_PICTURES)]
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(1.25 * columns, 1.6 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, row in zip(grid, shown, strict=False):
        issue, image = issues.iloc[row], examples.image(int(row))
        assert image is not None
        axes.imshow(image, cmap="gray" if image.ndim == 2 else None, vmin=0, vmax=255)
        label = f"{issue['given_label']} → {issue['predicted_label']}"
        label = label if issue["given_label"] != issue["predicted_label"] else f"{issue['given_label']}"
        title = f"{label}\n{issues.index[row]}, {issue['label_quality']:.2g}"
        axes.set_title(title, fontsize=7, color=INK, parse_math=False)
    return as_png(figure)


def _plot_precision(issues: pd.DataFrame) -> bytes:
    precision, flagged = expected_precision(issues), int(issues["is_label_issue"].sum())
    shown = min(len(precision), max(50, 3 * flagged))
    figure = new_figure(3.4, 2.2)
    axes = figure.subplots()
    style_axes(axes)
    axes.plot(np.arange(1, shown + 1), precision[:shown], color=INK)
    if flagged:
        axes.axvline(flagged, color="#b3422e", lw=1, ls="--")
        axes.text(flagged, 0.02, f" {flagged:,} flagged", fontsize=8, color="#b3422e")
    axes.set(xlabel="first n rows by label quality", ylabel="expected share of wrong labels", ylim=(0, 1.02))
    return as_png(figure)

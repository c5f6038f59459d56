"""matplotlib figures drawn by Agg, without a display; equal data give equal bytes."""

import io
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT = "#222222", "#c8c8c8"


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> "Figure":
    """Create an empty figure; sizes in inches, width at most 3.4. Layout None leaves the margins to the caller."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=160, layout=layout, facecolor="white")


def style_axes(axes: "Axes") -> None:
    """Apply the common style: frame, ticks, font sizes."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=8, length=2, color=SOFT)
    axes.xaxis.label.set(size=8.5, color=INK)
    axes.yaxis.label.set(size=8.5, color=INK)


def as_png(figure: "Figure") -> bytes:
    """Render to PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # matplotlib's version is left out of the file. `savefig` would draw everything twice, first for the layout.
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()

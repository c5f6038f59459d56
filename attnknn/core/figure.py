"""matplotlib figures on Agg, without a display; the same bytes for the same data."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT = "#222222", "#c8c8c8"


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure in inches; at most 3.4 wide."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=160, layout="constrained", facecolor="white")


def style_axes(axes: "Axes") -> None:
    """The same frame, ticks and sizes of type everywhere."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=8, length=2, color=SOFT)
    axes.xaxis.label.set(size=8.5, color=INK)
    axes.yaxis.label.set(size=8.5, color=INK)


def as_png(figure: "Figure") -> bytes:
    """The picture; the same bytes for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # matplotlib writes its version into the file; without it the bytes depend on the picture alone. `savefig` would
    # draw everything twice, the first time for the layout, which drawing does by itself.
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()

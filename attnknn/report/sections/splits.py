"""Tables of few rows over repeated splits: what one split of thirty rows cannot say."""

from collections.abc import Sequence

import pandas as pd

from attnknn.experiments.repeats import OURS
from attnknn.report import plots as pictures
from attnknn.report.claims import holm
from attnknn.report.results import OF_SPLITS, SPLITS_PAIRED, Run
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import arrow, by_dataset, fixed, method_cell, p_value

DIGITS = 3
METRICS = ("accuracy", "nll", "ece")
_NAMES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE"}


def judged(paired: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """The paired rows with p adjusted by Holm's method over all of them, and `verdict`: better, worse or ""."""
    rows = paired.assign(p=holm(paired["p"].tolist()))
    gains = rows["difference"].where(rows["metric"].isin(pictures.HIGHER_IS_BETTER), -rows["difference"])
    word = gains.map(lambda gain: "better" if gain > 0 else "worse")
    return rows.assign(verdict=word.where(rows["p"] < alpha, ""))


def sentence(scores: pd.DataFrame, rows: pd.DataFrame, method: str) -> str:
    """A method's means, and whom it is better and worse than; a line a metric."""
    lines = []
    name = pictures.method_name(method)
    name = name[0].lower() + name[1:]
    for metric in METRICS:
        own = scores[(scores["method"] == method) & (scores["metric"] == metric)].iloc[0]
        text = f"{_NAMES[metric]} of {name}: {fixed(own['value'], DIGITS)} ± {fixed(own['sd'], DIGITS)} over "
        text += f"{int(own['splits'])} splits"
        of = rows[(rows["metric"] == metric) & (rows["method"] == method)]
        found = {
            word: [pictures.method_name(n) for n in of[of["verdict"] == word]["baseline"]]
            for word in ("better", "worse")
        }
        parts = [f"{word} than {', '.join(names)}" for word, names in found.items() if names]
        rest = int((of["verdict"] == "").sum())
        if rest:
            parts.append(f"not clearly different from {'any other method' if rest == len(of) else f'the other {rest}'}")
        lines.append(f"{text[0].upper()}{text[1:]}; {'; '.join(parts)}.")
    return "\n".join(lines)


def picture(scores: pd.DataFrame, metric: str) -> bytes:
    """Mean of every method over the splits, with one standard deviation to each side."""
    of = scores[scores["metric"] == metric].iloc[::-1]
    figure = pictures.new_figure(3.4, 0.8 + 0.19 * len(of))
    axes = figure.subplots()
    for y, row in enumerate(of.to_dict("records")):
        colour = pictures.method_colour(row["method"])
        ends = [max(0.0, row["value"] - row["sd"]), row["value"] + row["sd"]]
        if metric == "accuracy":
            ends[1] = min(1.0, ends[1])
        axes.plot(ends, [y, y], color=colour, lw=2, alpha=0.55, solid_capstyle="butt")
        axes.plot(row["value"], y, "o", color=colour, ms=4.5)
    axes.set_yticks(range(len(of)), [pictures.method_name(name) for name in of["method"]])
    axes.set_ylim(-0.5, len(of) - 0.5)
    axes.locator_params(axis="x", nbins=3)
    title = f"{pictures.METRICS[metric]}: mean ± sd over splits"
    figure.suptitle(title, x=0.01, ha="left", size=10, weight="bold", color=pictures.INK)
    pictures.style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return pictures.as_png(figure)


def _means(scores: pd.DataFrame) -> Table:
    cells: dict[str, list[Cell]] = {}
    for metric in METRICS:
        of = scores[scores["metric"] == metric]
        top = of["value"].max() if metric in pictures.HIGHER_IS_BETTER else of["value"].min()
        for row in of.to_dict("records"):
            cell = Cell(fixed(row["value"], DIGITS), f"± {fixed(row['sd'], DIGITS)}", row["value"] == top)
            cells.setdefault(row["method"], []).append(cell)
    rows = [[method_cell(name), *row] for name, row in cells.items()]
    note = "Mean ± standard deviation over splits. Best mean in bold, which is no claim."
    return Table("means", "All methods over the splits", ["method", *map(arrow, METRICS)], rows, note, folded=False)


def _differences(rows: pd.DataFrame, method: str) -> Table:
    rows, name = rows[rows["method"] == method], pictures.method_name(method)
    made: list[Sequence[str | Cell]] = []
    for metric in METRICS:
        made.append([f"{pictures.METRICS[metric]}, {name} −"])
        for row in rows[rows["metric"] == metric].to_dict("records"):
            ends = f"{fixed(row['low'], DIGITS, True)} … {fixed(row['high'], DIGITS, True)}"
            cells = Cell(fixed(row["difference"], DIGITS, True), ends), f"± {fixed(row['sd'], DIGITS)}"
            made.append([method_cell(row["baseline"]), *cells, p_value(row["p"]), row["verdict"]])
    columns = ["method", "difference", "sd", "p, Holm", "is"]
    return Table(f"differences-{method}", f"{name} less each method", columns, made)


def _part(runs: Sequence[Run], alpha: float) -> Part:
    scores, rows = runs[-1].tables[OF_SPLITS], judged(runs[-1].tables[SPLITS_PAIRED], alpha)
    drawn = [(f"{pictures.METRICS[m]} over splits", picture(scores, m)) for m in ("accuracy", "nll")]
    ours = [method for method in OURS if method in set(rows["method"])]
    said = "\n".join(sentence(scores, rows, method) for method in ours)
    return Part(runs[0].dataset, said, drawn, [_means(scores), *(_differences(rows, method) for method in ours)])


def section(runs: Sequence[Run], alpha: float) -> Section:
    """Repeated splits."""
    repeated = {run.dataset for run in runs if OF_SPLITS in run.tables}
    return Section(
        "splits",
        "Repeated splits",
        "What would another split have said? Each split draws all parts anew, trains encoders, heads and peers anew, "
        "tunes on its own validation rows, and reads its own test rows once.",
        by_dataset([run for run in runs if run.dataset in repeated], lambda of: _part(of, alpha)),
        "Splits share most of their rows, so intervals and p values are those of the corrected resampled t-test "
        "(Nadeau & Bengio 2003), p adjusted by Holm's method over all rows of a dataset. The mean over folds is that "
        "of the encoders of the cross-fit and the main one, each with its own memory. With splits.refit fit and val "
        "rows join the memories once all is tuned, and encoders of another cross-fit, of all these rows, and "
        "classifiers on the columns learn anew; the main encoder does not.",
        "dvc exp run -S splits.count=20",
    )

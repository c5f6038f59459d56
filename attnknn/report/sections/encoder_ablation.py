"""What the parts of the encoder are worth: others, trained without one or with another, beside the configured one."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.paired_tests import BESIDE
from attnknn.report import plots as pictures
from attnknn.report.claims import OURS
from attnknn.report.differences import judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, digits_of, fixed, p_value

NAME = "encoder_ablation"
TABLES: dict[str, tuple[str, ...]] = {NAME: BESIDE}
CONFIGURED = "configured"
METRICS = ("accuracy", "nll")
_NAMES = {"accuracy": "accuracy", "nll": "NLL"}


def compared(rows: pd.DataFrame, level: Level) -> pd.DataFrame:
    """What `differences.judged` says of each variant, method and metric; differences are configured − variant."""
    of = rows[(rows["source"] != CONFIGURED) & rows["metric"].isin(METRICS)].drop(columns=["low", "high"])
    named = of.rename(columns={"difference_low": "low", "difference_high": "high"})
    return judged(over_runs(named, ("source", "method", "metric")), level)


def sentence(found: pd.DataFrame, digits: int) -> str:
    """Which variants the configured encoder is better and worse than, by what attention answers; a line a metric."""
    lines = []
    for metric in METRICS:
        of = found[(found["method"] == OURS) & (found["metric"] == metric)]
        words = []
        for word in ("better", "worse"):
            rows = of[of["finding"] == word].to_dict("records")
            names = [f"“{r['source']}” ({fixed(r['difference'], digits, True)})" for r in rows]
            words += [f"{word} than {', '.join(names)}"] if names else []
        rest = int((~of["finding"].isin(("better", "worse"))).sum())
        if rest:
            words.append(f"not clearly different from {'any variant' if rest == len(of) else f'the other {rest}'}")
        lines.append(f"By attention's {_NAMES[metric]}, the configured encoder is {'; '.join(words)}.")
    return "\n".join(lines)


def picture(found: pd.DataFrame, metric: str) -> bytes:
    """The configured encoder less each variant in one metric, for attention and distance weighting."""
    of = found[(found["metric"] == metric) & found["method"].isin((OURS, "distance"))]
    names = list(dict.fromkeys(of["source"]))
    figure = pictures.new_figure(3.4, 0.9 + 0.3 * len(names))
    axes = figure.subplots()
    axes.axvline(0, color=pictures.INK, lw=0.8)
    for row in of.to_dict("records"):
        y = names.index(row["source"]) + (-0.14 if row["method"] == OURS else 0.14)
        colour = pictures.method_colour(row["method"])
        axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=2, alpha=0.6, solid_capstyle="butt")
        axes.plot(row["difference"], y, "o", color=colour, ms=4)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    title = f"{pictures.METRICS[metric]}: configured − variant"
    figure.suptitle(title, x=0.01, ha="left", size=10, weight="bold", color=pictures.INK)
    side = "right" if metric in pictures.HIGHER_IS_BETTER else "left"
    axes.set_xlabel(f"{side} of 0: configured is better\n(red: attention, blue: distance)", loc="right")
    pictures.style_axes(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return pictures.as_png(figure)


def _table(rows: pd.DataFrame, found: pd.DataFrame, digits: int) -> Table:
    value = rows.groupby(["source", "method", "metric"], sort=False)["value"].mean()
    made: list[Sequence[str | Cell]] = []
    for method in dict.fromkeys(found["method"]):
        made.append([pictures.method_name(str(method))])
        made.append(
            [CONFIGURED, *(cell for m in METRICS for cell in (fixed(value[CONFIGURED, method, m], digits), "", ""))]
        )
        of = found[found["method"] == method]
        for name in dict.fromkeys(of["source"]):
            line: list[str | Cell] = [str(name)]
            for row in (of[(of["source"] == name) & (of["metric"] == m)].iloc[0] for m in METRICS):
                ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
                line += [
                    fixed(value[name, method, row["metric"]], digits),
                    Cell(fixed(row["difference"], digits, True), ends),
                    p_value(row["p"]),
                ]
            made.append(line)
    head = ["encoder", *(text for m in METRICS for text in (pictures.METRICS[m], "configured − it", "p, Holm"))]
    return Table("encoders", "Encoders beside the configured one", head, made, folded=False)


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows, digits = joined(runs, NAME), digits_of(runs)
    found = compared(rows, level)
    drawn = [(f"encoder variants, {pictures.METRICS[m]}", picture(found, m)) for m in METRICS]
    return Part(runs[0].dataset, sentence(found, digits), drawn, [_table(rows, found, digits)])


def section(runs: Sequence[Run], level: Level) -> Section:
    """Encoders trained otherwise."""
    return Section(
        NAME,
        "Parts of the encoder",
        "What do the parts of the encoder bring to the neighbours? Each variant trains another encoder, with its own "
        "memory, head and tuned baselines; the rows are the same.",
        by_dataset([run for run in runs if NAME in run.tables], lambda of: _part(of, level)),
        "Differences are configured − variant. A single training of each: how much another seed would change is not in "
        "the intervals, unless several seeds were run.",
        "dvc exp run -S 'encoder_ablation.seeds=[42]'",
    )

"""What the sections on wrong labels and on rare classes in the memory share."""

from collections.abc import Mapping, Sequence

import pandas as pd

from attnknn.report import plots as pictures
from attnknn.report.results import CLEAN, Run, everywhere, joined
from attnknn.report.section import Cell, Table
from attnknn.report.tables import comparison, digits_of, fixed, method_cell

METHODS = ("distance", "distance_vector", "attention", "prototypes", "linear_temperature")
Kinds = Mapping[str, float]  # first words of conditions → what the last word is when nothing is wrong


def of_kind(runs: Sequence[Run], kind: str, whole: float) -> pd.DataFrame:
    """The scores under all conditions of one kind, with their `rate`, clean among them; empty if there are none."""
    intervals = everywhere(runs, "intervals")
    words = intervals["condition"].str.rpartition(" ")  # columns: what, the space, how much
    rows = intervals[words[0] == kind]
    if rows.empty:
        return rows.assign(rate=pd.Series(dtype=float))
    rows = rows.assign(rate=words[2][rows.index].astype(float))
    return pd.concat([intervals[intervals["condition"] == CLEAN].assign(rate=whole), rows])


def curves(runs: Sequence[Run], kinds: Kinds, metrics: Sequence[str]) -> list[tuple[str, bytes]]:
    """Each metric against how much is wrong, a picture a kind."""
    found = []
    for kind, whole in kinds.items():
        rows = of_kind(runs, kind, whole)
        rows = rows[rows["method"].isin(METHODS)]
        if rows.empty:
            continue
        ends = rows.groupby(["metric", "method", "rate"], sort=False).agg(
            value=("value", "mean"), low=("low", "min"), high=("high", "max")
        )
        for metric in metrics:
            picture = pictures.against_rate(ends.xs(metric, level="metric").reset_index(), metric, kind)
            found.append((f"{pictures.METRICS[metric]} under {kind}", picture))
    return found


def moves(runs: Sequence[Run], stage: str, kinds: Kinds) -> str:
    """From clean to the worst of each kind: how far the NLL of attention and of the baseline to beat goes, in words."""
    digits, paired, words = digits_of(runs), joined(runs, f"{stage}_paired"), []
    for kind, whole in kinds.items():
        rows = of_kind(runs, kind, whole)
        if rows.empty:
            continue
        nll = rows[rows["metric"] == "nll"].groupby(["method", "rate"])["value"].mean()
        worst = max(rows["rate"].unique(), key=lambda rate: abs(rate - whole))
        mine = paired[(paired["metric"] == "nll") & (paired["method"] == "attention")]
        mine = mine[(mine["baseline"] == "distance_vector") & (mine["condition"] == f"{kind} {worst}")]
        ends = f"{fixed(mine['low'].min(), digits, True)} … {fixed(mine['high'].max(), digits, True)}"
        from_to = [f"{fixed(nll[m, whole], digits)} → {fixed(nll[m, worst], digits)}" for m in METHODS[2:0:-1]]
        words.append(
            f"{kind} {worst:g}: attention's NLL {from_to[0]}, distance + vector scaling's {from_to[1]}; the difference "
            f"there is {fixed(mine['difference'].mean(), digits, True)} ({ends}, {len(mine)} runs)"
        )
    return "From clean to " + "; ".join(words) + "."


def table(runs: Sequence[Run], kinds: Kinds, metrics: Sequence[str]) -> Table:
    """Every condition with the methods that are set side by side."""
    rows: list[Sequence[str | Cell]] = []
    for kind, whole in kinds.items():
        for condition, of in of_kind(runs, kind, whole).groupby("condition", sort=False):
            if condition == CLEAN and rows:
                continue
            count = len(of[["seed", "repeat"]].drop_duplicates())
            rows.append([f"{condition}, {count} runs" if count > 1 else str(condition)])
            wanted = of[of["method"].isin(METHODS) & of["metric"].isin(metrics)]
            for method, cells in comparison(wanted, digits_of(runs), ends=True).items():
                rows.append([method_cell(method), *(cells.get(m, "") for m in metrics)])
    head = ["method", *(pictures.METRICS.get(m, f"{m}-shot accuracy") for m in metrics)]
    note = "Means over runs; a run is a new memory and a new head. Intervals reach from the lowest end to the highest."
    return Table("conditions", "Every condition", head, rows, note)

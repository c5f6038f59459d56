"""What each part of the head is worth: taken out, put in, and alone."""

from collections.abc import Sequence

import pandas as pd

from attnknn.report import plots as pictures
from attnknn.report.claims import combined_p, holm
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, digits_of, fixed, p_value

TABLES = {
    "ablation": (
        "variant",
        "group",
        "repeat",
        "metric",
        "validation",
        "value",
        "reference",
        "difference",
        "low",
        "high",
        "p",
    )
}
_ROUNDING = 1e-6  # of scores made of float32 probabilities


def ablated(rows: pd.DataFrame) -> pd.DataFrame:
    """The variants of the ablation over their runs, one row a variant and metric.

    Args:
        rows: seed, repeat, group, variant, metric, validation, value, reference, difference, low, high, p.

    Returns:
        group, variant, metric, runs, validation, value and difference (means), sd (of the difference), low and high
        (the runs' furthest ends), p (combined over runs, not adjusted), reference; groups in `plots.GROUPS`' order.
    """
    found = rows.groupby(["group", "variant", "metric"], sort=False).agg(
        reference=("reference", "first"),
        runs=("value", "size"),
        validation=("validation", "mean"),
        value=("value", "mean"),
        difference=("difference", "mean"),
        sd=("difference", "std"),
        low=("low", "min"),
        high=("high", "max"),
        p=("p", lambda p: combined_p(p.tolist())),
    )
    order = {group: place for place, group in enumerate(pictures.GROUPS)}
    return found.reset_index().sort_values("group", key=lambda g: g.map(order), kind="stable", ignore_index=True)


def unlearned(rows: pd.DataFrame) -> tuple[int, int]:
    """How many full heads answer as distance weighting does, where every fit starts, and how many there are.

    Args:
        rows: as for `ablated`, of one dataset.
    """
    nll = rows[rows["metric"] == "nll"].set_index(["seed", "repeat"])[["variant", "validation", "value"]]
    full, start = (nll[nll["variant"] == name].drop(columns="variant") for name in ("full", "distance"))
    same = (full - start).abs().max(axis=1, skipna=False) < _ROUNDING
    return int(same.sum()), len(full)


def carried(ablated: pd.DataFrame, digits: int) -> str:
    """Which parts the head misses most, by the NLL on val, in words.

    Args:
        ablated: of `ablated`.
    """
    nll = ablated[ablated["metric"] == "nll"].set_index("variant")
    rises = nll[nll["group"] == "without"]["validation"] - nll["validation"]["full"]
    most = rises[rises.round(digits) > 0].nlargest(3)
    if most.empty:
        return "No part that is taken out raises the NLL on val."
    named = [f"{name.replace('_', ' ')} ({fixed(rise, digits, sign=True)})" for name, rise in most.items()]
    return f"Taken out one at a time, the NLL on val rises most {', '.join(named)}."


def read_by_parts(ablated: pd.DataFrame, digits: int) -> str:
    """What each part of the retrieval head moves its NLL on test rows by, in words; "" where there is none.

    Args:
        ablated: of `ablated`.
    """
    nll = ablated[(ablated["metric"] == "nll") & (ablated["group"] == "retrieval")]
    if nll.empty:
        return ""
    # Several changes do not give the very same head, unless none of them learnt.
    same = nll[["validation", "value"]].round(6).duplicated(keep=False) & (nll["difference"].abs() > _ROUNDING)
    moves = [
        f"{row['variant'].removeprefix('retrieval ')} {fixed(row['difference'], digits, True)} (p {p_value(p)})"
        for row, p in zip(nll[~same].to_dict("records"), holm(nll[~same]["p"].tolist()), strict=True)
    ]
    if same.any():
        moves.append(f"{int(same.sum())} changes left heads that did not learn")
    return f"The retrieval head's NLL on test rows moves, more being worse, p by Holm's method: {'; '.join(moves)}."


def parts_table(ablated: pd.DataFrame, digits: int) -> Table:
    """Every variant with what it moves, in its groups.

    Args:
        ablated: of `ablated`.
    """
    rows: list[Sequence[str | Cell]] = []
    for group, of_group in ablated.groupby("group", sort=False):
        rows.append([pictures.GROUPS[str(group)][0]])
        for variant, of in of_group.groupby("variant", sort=False):
            cells = {r["metric"]: r for r in of.to_dict("records")}
            reference = str(of["reference"].iloc[0])
            line: list[str | Cell] = [str(variant).replace("_", " ")]
            line += ["" if variant == reference else reference.replace("_", " ")]
            line += [fixed(cells["nll"]["validation"], digits)]
            for metric in ("nll", "accuracy"):
                r = cells[metric]
                ends = f"{fixed(r['low'], digits + 1, True)} … {fixed(r['high'], digits + 1, True)}"
                move = Cell(fixed(r["difference"], digits + 1, sign=True), ends)
                line += [fixed(r["value"], digits), *(("", "") if variant == reference else (move, p_value(r["p"])))]
            rows.append([*line, fixed(cells["ece"]["value"], digits)])
    head = ["variant", "against", "NLL on val ↓", "NLL ↓", "difference", "p", "accuracy ↑", "difference", "p", "ECE ↓"]
    return Table("ablation", "Every variant of the head", head, rows)


def _part(runs: Sequence[Run]) -> Part:
    found, digits = ablated(joined(runs, "ablation")), digits_of(runs)
    others = found[found["group"] != "full"]
    shown = [
        (f"ablation, {pictures.METRICS[m]}", pictures.forest(others[others["metric"] == m], m))
        for m in ("nll", "accuracy")
    ]
    still, heads = unlearned(joined(runs, "ablation"))
    if still == heads:
        words = "The head did not learn here, it answers as distance weighting does; its parts cannot be judged."
    else:
        words = carried(found, digits) + (f" Means over {heads} heads" if heads > 1 else " One head each")
        words += f", {still} of which did not learn." if still else "."
    words = "\n".join(filter(None, (words, read_by_parts(found, digits + 1))))
    return Part(runs[0].dataset, words, shown, [parts_table(found, digits)])


def section(runs: Sequence[Run]) -> Section:
    """The parts of the head."""
    return Section(
        "ablation",
        "What each part of the head is worth",
        "Each part is taken out of the head, put into it, and tried alone; the historic form and a head that reads its "
        "neighbours instead of counting votes stand beside.",
        by_dataset([r for r in runs if "ablation" in r.tables], _part),
        "To choose parts, read the NLL on val; everything else is of the test rows. In the tables p values are as "
        "measured, of the test rows given these heads: they do not hold how fits differ, and are no claims. On a clean "
        "balanced bank the class prior is constant, so what taking it out moves is the spread of fits. Under a "
        "cross-fit, val is the rows of all folds too, but for what is fitted on the main embeddings alone: compare "
        "those with full, without folds.",
        "dvc repro ablation",
    )

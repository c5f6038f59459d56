"""The historic study: its tables and curves compared with ours, and its conclusions tested on our runs.

`historic.csv` holds the study's numbers as its documents state them: one run each, without intervals. `value` is that
of the notebook, `other` that of the write-up where it differs.

`conclusions.csv` holds its conclusions, and the difference that tests each: rows of `table` (with `:difference`, their
differences attention − method) with the column values `rows`, less those of `less_table` with the values `less`. A
conclusion is supported where sign · difference lies above `least`, and contradicted where it lies below `margin`.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Any

import pandas as pd

from attnknn.evaluation.opponents import ROLES
from attnknn.evaluation.paired_tests import combined_p
from attnknn.report.claims import FEWEST_ERRORS
from attnknn.report.differences import Level
from attnknn.report.plots import INK, METRICS, Line, line_plot, method_colour, method_name
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, fixed, interval

# It reads what the other experiments wrote.
TABLES: dict[str, tuple[str, ...]] = {}
METHODS = ("uniform", "distance", "attention")
# experiment: the presets that repeat it. The documents have one table for the first three.
EXPERIMENTS = {
    "1–3": ("experiment1", "experiment2", "experiment3"),
    "4": ("experiment4",),
    "5": ("experiment5",),
    "6": ("experiment6",),
}
# table: (caption, x label, prefix of its conditions, x of the unmodified bank)
_TABLES = {
    "main": ("The main comparison", "", "", 0.0),
    "k_sweep": ("Over the number of neighbours", "k", "", 0.0),
    "noise": ("Wrong labels in the bank (symmetric)", "share of wrong labels in the bank", "noise ", 0.0),
    "imbalance": ("A long tail in the bank", "rarest class / largest class", "long tail ", 1.0),
}
_NAMES = {"attention_tta": "Attention + TTA", "attention_ensemble": "Attention + k-ensemble"}


def verdict(low: float, high: float, least: float, margin: float) -> str:
    """supported: the interval lies above `least`; contradicted: below `margin`; undecided: neither."""
    return "supported" if low > least else "contradicted" if high < margin else "undecided"


def _measured(runs: Sequence[Run], table: str, where: str) -> dict[str, float] | None:
    """Mean, outer ends and combined p (NaN without one) of the rows with these column values; None without any."""
    table, _, difference = table.partition(":")
    rows = joined(runs, table)
    if "role" in rows:
        rows = rows[~rows["role"].isin(list(ROLES))]
        if difference:
            rows = rows.drop(columns=["low", "high"])
            rows = rows.rename(columns={"difference_low": "low", "difference_high": "high"})
        else:
            rows = rows.drop(columns=["difference", "p"])
    for column, value in (pair.split("=") for pair in where.split("; ")):
        if len(rows):
            rows = rows[rows[column] == type(rows[column].iloc[0])(value)]
    if rows.empty:
        return None
    if "views" in rows:
        rows = rows[rows["views"] == rows["views"].max()]
    value = rows["difference" if "difference" in rows else "value"].mean()
    p = combined_p(rows["p"].tolist()) if "p" in rows else float("nan")
    return {"difference": float(value), "low": float(rows["low"].min()), "high": float(rows["high"].max()), "p": p}


def conclusions_table(runs: Sequence[Run], level: Level) -> Table:
    """Every conclusion that the runs of one dataset can test: claim, our difference with its interval, verdict."""
    measured, errors = joined(runs, "intervals"), 0
    if len(measured):
        measured = measured[(measured["method"] == "attention") & (measured["metric"] == "accuracy")]
        errors = round((1 - measured["value"].max()) * min(run.json["prepare"]["test"] for run in runs))
    rows: list[Row] = []
    for c in _read("conclusions.csv").to_dict("records"):
        row, less = _measured(runs, c["table"], c["rows"]), None
        if c["less"]:
            less = _measured(runs, c["less_table"], c["less"])
        if row is None or (c["less"] and less is None):
            continue
        if less is not None:
            # The same test rows: dependent, so the widths are added.
            row["difference"] -= less["difference"]
            row |= {"low": row["low"] - less["high"], "high": row["high"] - less["low"], "p": float("nan")}
        low, high = sorted((c["sign"] * row["low"], c["sign"] * row["high"]))
        if row["p"] >= level.alpha:
            low, high = min(low, 0.0), max(high, 0.0)
        few = errors < FEWEST_ERRORS and c["table"] != "profile_heads"
        word = "undecided" if few else verdict(low, high, c["least"], c["margin"])
        number = Cell(fixed(row["difference"], 4, True), interval(row, 4, True))
        rows.append([c["claim"], c["measure"], number, word, c["source"]])
    head = ["the study", "measured", "difference", "verdict", "source"]
    note = f"p not adjusted; undecided below {FEWEST_ERRORS} errors. Theory tests the rate of the error."
    return Table("conclusions", "Conclusions of the study, tested on our runs", head, rows, note, folded=False)


def _read(name: str) -> pd.DataFrame:
    with resources.files("attnknn.report").joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False)


def study_numbers(dataset: str) -> pd.DataFrame:
    """The study's numbers that are comparable with a dataset; empty for most."""
    rows = _read("historic.csv")
    return rows[rows["dataset"] == ("cifar10" if dataset.startswith("cifar10_") else dataset)]


def our_scores(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """Our rows of x, method, metric, value for one of the study's tables; means over seeds and repeats."""
    *_, prefix, unmodified = _TABLES[table]
    rows, frames = joined(runs, table), [joined(runs, "intervals").assign(x=unmodified)]
    if table == "k_sweep":
        frames = [rows.assign(x=rows["k"].astype(float))] if len(rows) else []
    elif prefix:
        if rows.empty:
            return pd.DataFrame()
        rows = rows[rows["condition"].str.startswith(prefix)]
        frames.append(rows.assign(x=rows["condition"].str.removeprefix(prefix).astype(float)))
    else:
        views, ensemble = joined(runs, "tta"), joined(runs, "ensemble")
        if len(views):
            rows = views[(views["views"] == views["views"].max()) & (views["method"] == "attention")]
            frames.append(rows.assign(x=0.0, method="attention_tta"))
        if len(ensemble):
            rows = ensemble[(ensemble["variant"] == "k_ensemble") & (ensemble["method"] == "attention")]
            frames.append(rows.assign(x=0.0, method="attention_ensemble"))
    frames = [frame[~frame["role"].isin(list(ROLES))] if "role" in frame else frame for frame in frames]
    frames = [frame for frame in frames if "metric" in frame]
    if not frames:
        return pd.DataFrame()
    last = frames[-1] if prefix and unmodified in set(frames[-1]["x"]) else pd.concat(frames)
    return last.groupby(["x", "method", "metric"], sort=False)["value"].mean().reset_index()


def _compared(table: str, study: pd.DataFrame, ours: pd.DataFrame, shown: Sequence[str], settings: str) -> Table | None:
    """One of the study's tables with our scores, a column per experiment; None without any score of ours."""
    keys = ["x", "method", "metric"]
    study = study[study["table"] == table]
    if ours.empty or study.merge(ours, on=keys).empty:
        return None
    values, caption = ours.set_index(keys)["value"].to_dict(), _TABLES[table][0]
    shown = [name for name in shown if name in set(study["experiment"])]
    rows: list[Row] = []
    for key, group in study.groupby(keys, sort=False):
        x, method, metric = float(key[0]), str(key[1]), str(key[2])  # type: ignore[index]
        texts = {
            r["experiment"]: fixed(r["value"], 4) + (f" / {fixed(float(r['other']), 4)}" if r["other"] else "")
            for r in group.to_dict("records")
        }
        name = Cell(_NAMES.get(method) or method_name(method), method=method.partition("_")[0])
        our_value = fixed(values[key], 4) if key in values else "–"
        rows.append([METRICS[metric], f"{x:g}", name, our_value, *(texts.get(e, "–") for e in shown)])
    rows.sort(key=lambda row: list(METRICS.values()).index(str(row[0])))
    if table == "main":
        rows = [[row[0], *row[2:]] for row in rows]
    head = ["metric", *([] if table == "main" else ["x"]), "method", "ours", *(f"experiment {e}" for e in shown)]
    sources = "; ".join(dict.fromkeys(study["source"]))
    return Table(table, f"{caption}: ours, {settings}, and the study's. Sources: {sources}.", head, rows)


def _others(runs: Sequence[Run], study: pd.DataFrame, measured: pd.DataFrame) -> list[Table]:
    """Tables of index times and of the study's other numbers, with ours where we have them."""
    bank, profile, theory = runs[0].json["prepare"].get("bank"), joined(runs, "profile"), joined(runs, "theory")
    ours: dict[Any, Any] = {}
    if bank:
        ours = {("", "bank rows n"): bank, ("", "√n"): round(bank**0.5)}
    if len(profile):
        ours |= profile.groupby(["index", "quantity"])["value"].mean().to_dict()
    if len(theory):
        norms = theory[(theory["quantity"] == "norm") & (theory["item"] == "mean")]
        ours["", "mean norm of the embeddings"] = norms["value"].mean()
    nll = measured[(measured["method"] == "uniform") & (measured["metric"] == "nll")] if len(measured) else measured
    ours |= {("", f"NLL at k {r['x']:g}"): r["value"] for r in nll.to_dict("records")}
    captions = {"profile": "Indexes; the study's on 50,000 × 256 Gaussian numbers", "theory": "Theory, and NLL over k"}
    tables = []
    for name, caption in captions.items():
        rows = [
            [
                " ".join(filter(None, (r["method"], r["metric"]))).replace("_", " "),
                f"{ours[r['method'], r['metric']]:.4g}" if (r["method"], r["metric"]) in ours else "–",
                f"{r['value']:.5g}",
                r["source"],
            ]
            for r in study[study["table"] == name].to_dict("records")
        ]
        if name == "theory" or len(profile):
            tables.append(Table(name, caption, ["quantity", "ours", "the study", "source"], rows))
    return tables


def _pictures(study: pd.DataFrame, measured: dict[str, pd.DataFrame], first: str) -> list[tuple[str, bytes]]:
    """The study's curves in grey, the first experiment's in black, with ours in the methods' colours."""
    drawn = []
    for table, (caption, xlabel, _, unmodified) in list(_TABLES.items())[1:]:
        for metric, curves in study[study["table"] == table].groupby("metric", sort=False):
            rows = measured[table]
            if rows.empty or rows[(rows["metric"] == metric) & rows["method"].isin(METHODS)]["x"].nunique() < 2:
                continue
            rows = rows[(rows["metric"] == metric) & rows["x"].between(curves["x"].min(), curves["x"].max())]
            lines = [
                Line("", INK if e == first else "#9c9c9c", group.sort_values("x"), thin=True)
                for (e, _), group in curves.groupby(["experiment", "method"], sort=False)
            ]
            lines[0] = Line("the study's experiments", "#9c9c9c", lines[0].points, thin=True)
            lines += [
                Line(method_name(m), method_colour(m), rows[rows["method"] == m].sort_values("x")) for m in METHODS
            ]
            ticks = sorted(set(curves["x"]), reverse=unmodified > 0)
            png = line_plot(lines, METRICS[str(metric)], xlabel, ticks=ticks)
            drawn.append((f"{METRICS[str(metric)]} of the study's experiments and of ours: {caption.lower()}", png))
    return drawn


def section(runs: Sequence[Run], level: Level, preset: str = "none") -> Section:
    """The study's numbers with ours, and its conclusions.

    Args:
        level: of each conclusion by itself.
        preset: of the runs; its experiment comes first.
    """
    shown = sorted(EXPERIMENTS, key=lambda name: preset not in EXPERIMENTS[name])
    first = shown[0] if preset in EXPERIMENTS[shown[0]] else ""
    settings = "with the project's own settings" if preset == "none" else f"with the preset {preset}"

    def part(group: Sequence[Run]) -> Part:
        study, measured = study_numbers(group[0].dataset), {table: our_scores(group, table) for table in _TABLES}
        tables = [_compared(table, study, measured[table], shown, settings) for table in _TABLES]
        if "theory" in set(study["table"]):
            tables += _others(group, study, measured["k_sweep"])
        present = [table for table in tables if table is not None]
        return Part(group[0].dataset, _pictures(study, measured, first), [conclusions_table(group, level), *present])

    return Section(
        "historic",
        "The historic study",
        "Six historic experiments on CIFAR-10, one run each, asked the same questions. Which of their conclusions do "
        "our runs support?",
        by_dataset(runs, part),
        "After a slash stands the write-up's number where it differs from the notebook's. The study did not tune its "
        "baselines and chose its epoch on test rows; data and encoder differ from ours.",
        "dvc exp run -S preset=experiment5",
    )

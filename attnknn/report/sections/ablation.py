"""Ablations: what the parts of the attention head and of the encoder do."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.results import Run, differences, joined
from attnknn.report.tables import (
    Cell,
    Row,
    Section,
    Table,
    difference_cell,
    fixed,
    judged_table,
    scores_table,
    verdict_cell,
    verdicts_table,
)
from attnknn.report.verdicts import judged

GROUPS = {
    "without": ("Without one part", "#0072b2"),
    "with": ("With one part more", "#56b4e9"),
    "alone": ("One part alone", "#009e73"),
    "tabr": ("TabR, one part changed", "#cc79a7"),
    "reference": ("For reference", "#7f7f7f"),
}
SCORES = ("accuracy", "nll", "ece")


def _tests(runs: Sequence[Run], rows: pd.DataFrame) -> pd.DataFrame:
    """Judged comparisons in NLL, with `state`: why there is no verdict where a head did not train, else empty.

    Errors are those of the method that makes more, since the table does not have those of either.
    """
    sizes = {run.dataset: run.json["prepare"]["test"] for run in runs}
    row: dict[Any, Any]
    wrong = {
        (row["dataset"], row["seed"], row["variant"]): round((1 - row["value"]) * sizes[row["dataset"]])
        for row in rows[rows["metric"] == "accuracy"].to_dict("records")
    }
    states = rows[rows["trained"] != "yes"].groupby(["dataset", "variant"])["trained"].first().to_dict()
    rows = rows[(rows["metric"] == "nll") & (rows["variant"] != rows["reference"])]
    errors, state = [], []
    for row in rows.to_dict("records"):
        dataset, pair = row["dataset"], (row["variant"], row["reference"])
        own, other = (states.get((dataset, name), "") for name in pair)
        state.append(own or (other and f"{pair[1]} {other}"))
        errors.append(0 if state[-1] else max(wrong.get((dataset, row["seed"], name), 0) for name in pair))
    tests = judged(
        rows.assign(errors=errors, state=state), ["dataset", "group", "variant", "reference", "metric", "state"]
    )
    tests["verdict"] = tests["verdict"].where(tests["state"] == "", tests["state"])
    return tests.sort_values("group", key=lambda g: g.map(list(GROUPS).index), kind="stable")


def ablation(runs: Sequence[Run]) -> Section:
    rows, figures, tables, verdicts = joined(runs, "ablation"), [], [], []
    if len(rows):
        rows = rows.assign(**{name: rows[name].str.replace("_", " ") for name in ("variant", "reference")})
        tests = _tests(runs, rows)
        undrawn: list[Row] = []
        for dataset, own in tests.groupby("dataset", sort=False):
            drawn, others = own[own["state"] == ""], own.loc[own["state"] != "", "state"].value_counts()
            judgements: list[Row] = [[str(dataset)]]
            judgements += [[f"{r['variant']} − {r['reference']}", verdict_cell(r)] for r in drawn.to_dict("records")]
            judgements += [[f"{count} variant{'s' * (count > 1)}", Cell(str(state))] for state, count in others.items()]
            if drawn.empty:
                undrawn += judgements
                continue
            verdicts.append(Table("verdicts", "NLL", ["NLL", "verdict"], judgements))
            drawn = drawn.assign(
                label=drawn["variant"],
                colour=[GROUPS[g][1] for g in drawn["group"]],
                group=[GROUPS[g][0] for g in drawn["group"]],
            )
            label = plots.better_side("nll", "difference from its reference")
            figures.append((str(dataset), plots.forest_plot(drawn, f"{dataset}: NLL", label)))
        if undrawn:
            last = verdicts.pop().rows if verdicts else []
            verdicts.append(Table("verdicts", "NLL", ["NLL", "verdict"], [*last, *undrawn]))
        columns = rows.groupby(["dataset", "variant", "metric"])[["fit", "validation", "value"]].mean().to_dict("index")
        lines: list[Row] = []
        for (dataset, group), own in tests.groupby(["dataset", "group"], sort=False):
            lines.append([f"{dataset}, {GROUPS[str(group)][0].lower()}"])
            for row in own.to_dict("records"):
                scores = columns[dataset, row["variant"], "nll"].values()
                numbers = ("" if math.isnan(score) else fixed(score, row["digits"]) for score in scores)
                cell = row["state"] or verdict_cell(row)
                lines.append([row["variant"], row["reference"], *numbers, cell])
        head = ["variant", "against", "NLL on fit ↓", "NLL on val ↓", "NLL on test ↓", "verdict"]
        tables = [
            Table(
                "ablation",
                "All variants; intervals without the variation between fits, errors of the worse method",
                head,
                lines,
            )
        ]
    return Section(
        "ablation",
        "Ablation of the attention head",
        "Heads have 50 neighbours by default (ablation.k). One whose NLL ends more than 1e-3 above that of a simpler "
        "head within it did not train, one that gains less than 1e-4 on val rows kept its start; no verdicts.",
        figures,
        tables,
        "dvc repro ablation",
        verdicts=verdicts,
    )


def encoder_ablation(runs: Sequence[Run]) -> Section:
    rows, figures, tables, verdicts = joined(runs, "encoder_ablation"), [], [], []
    if len(rows):
        paired = differences(rows[rows["metric"].isin(("accuracy", "nll"))]).rename(columns={"source": "variant"})
        tests = judged(paired, ["dataset", "variant", "method", "metric"])
        main = tests[(tests["method"] == "attention") & (tests["metric"] == "nll")]
        verdicts = verdicts_table("NLL of attention, configured encoder −", main, ["variant"])
        drawn = tests[(tests["metric"] == "nll") & tests["method"].isin(("attention", "distance"))]
        for dataset, own in drawn.groupby("dataset", sort=False):
            own = plots.by_method(own).assign(label=own["variant"])
            label = "configured − variant, left of 0: better\n(red: attention, blue: distance)"
            figures.append((str(dataset), plots.forest_plot(own, f"{dataset}: NLL", label)))
        tables = [
            judged_table(
                "tests",
                "Configured encoder − each variant",
                tests,
                ["dataset", "variant", "method", "metric", "errors"],
            ),
            scores_table("scores", "Scores of every variant", rows, ["source", "method"], SCORES),
        ]
    return Section(
        "encoder_ablation",
        "Ablation of the encoder",
        "Each variant trains another encoder, with its own bank, head and tuned baselines. With one seed the intervals "
        "do not hold the variation between trainings.",
        figures,
        tables,
        "dvc exp run -S 'encoder_ablation.seeds=[42]'",
        verdicts=verdicts,
    )


def finetune(runs: Sequence[Run]) -> Section:
    rows, tables = joined(runs, "finetune"), []
    if len(rows):
        keys = ["dataset", "seed", "source"]
        accuracy = rows[rows["metric"] == "accuracy"].set_index(keys)["value"].to_dict()
        lines: list[Row] = []
        for row in rows[rows["metric"] == "nll"].to_dict("records"):
            values = accuracy[tuple(row[key] for key in keys)], row["value"], row["val_nll"], row["val_nll_start"]
            difference = {"low": row["difference_low"], "high": row["difference_high"]}
            cell = "" if math.isnan(row["difference"]) else difference_cell(row | difference)
            numbers = [fixed(value, row["digits"]) for value in values]
            lines.append([*(str(row[key]) for key in keys), *numbers, str(row["best_epoch"]), cell])
        head = [*keys, "accuracy ↑", "NLL ↓", "NLL on val ↓", "at the start", "epoch", "NLL: together − this"]
        tables = [Table("finetune", "Attention on test rows", head, lines)]
    return Section(
        "finetune",
        "Head and encoder fine-tuned together",
        "By the NLL of fit rows, with a memory embedded anew each epoch; the epoch is chosen on val rows. `head alone` "
        "is trained as long with the encoder fixed.",
        [],
        tables,
        "dvc exp run -S 'finetune.seeds=[42]'",
    )

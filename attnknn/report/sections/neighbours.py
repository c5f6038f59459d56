"""How many neighbours, over how many views, and what they cost: k sweep, ensembles, test-time augmentation, profile."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.opponents import OURS, ROLES
from attnknn.report import plots
from attnknn.report.names import METHODS
from attnknn.report.results import Run, differences, joined
from attnknn.report.tables import (
    Cell,
    Row,
    Section,
    Table,
    judged_table,
    method_cell,
    scores_table,
    short,
    verdicts_table,
)
from attnknn.report.verdicts import judged

SCORES = ("accuracy", "nll", "ece")
_DRAWN = ("uniform", "distance", "attention", "prototypes", "linear")  # over views


def best_k(swept: pd.DataFrame) -> pd.DataFrame:
    """dataset, seed, method and the k of the lowest NLL on val, the lowest k on a tie."""
    nll = swept[swept["metric"] == "nll"].sort_values(["validation", "k"], kind="stable")
    return nll.groupby(["dataset", "seed", "method"], sort=False).head(1)[["dataset", "seed", "method", "k"]]


def k_sweep(runs: Sequence[Run]) -> Section:
    swept, paired = joined(runs, "k_sweep"), joined(runs, "k_sweep_paired")
    figures, tables, verdicts = [], [], []
    if len(swept) and len(paired):
        best = best_k(swept)
        for dataset, own in swept[swept["metric"] == "nll"].groupby("dataset", sort=False):
            methods = [m for m in METHODS if m in set(own["method"])]
            marks = {m: set(best.loc[(best["dataset"] == dataset) & (best["method"] == m), "k"]) for m in methods}
            lines, ticks = plots.method_lines(own, "k", methods, marks), sorted(set(own["k"]))
            figures.append((str(dataset), plots.line_plot(lines, f"{dataset}: NLL", "neighbours k", ticks=ticks)))
        paired = differences(paired[paired["role"].isin(list(ROLES)) & (paired["metric"] == "nll")])
        keys = ["dataset", "role", "metric"]
        tests = judged(paired, keys)
        tests["method"] = paired.groupby(keys, sort=False)["method"].agg(lambda m: "/".join(m.unique())).to_numpy()
        verdicts = verdicts_table("NLL of attention −", tests, ["method"])
        tables = [
            scores_table(
                "by_k", "Scores at each k", swept.assign(k=swept["k"].map("k {:g}".format)), ["k", "method"], SCORES
            ),
        ]
    return Section(
        "k_sweep",
        "Number of neighbours",
        "At each k baselines are tuned and attention is refitted; large dots mark the k of the lowest NLL on val, "
        "which the verdicts compare.",
        figures,
        tables,
        "dvc exp run -S 'k_sweep.ks=[1,10,50]'",
        verdicts=verdicts,
    )


def tta(runs: Sequence[Run]) -> Section:
    rows, paired = joined(runs, "tta"), joined(runs, "tta_paired")
    figures, tables, verdicts = [], [], []
    if len(rows) and len(paired):
        for dataset, own in rows[rows["metric"] == "nll"].groupby("dataset", sort=False):
            lines, ticks = plots.method_lines(own, "views", _DRAWN), sorted(own["views"].unique())
            figures.append((str(dataset), plots.line_plot(lines, f"{dataset}: NLL", "views averaged", ticks=ticks)))
        same = paired["method"] == paired["baseline"]
        gains = judged(
            paired[same & paired["method"].isin(METHODS) & (paired["metric"] != "accuracy")],
            ["dataset", "method", "metric"],
        )
        ours = judged(paired[~same & (paired["metric"] == "nll")], ["dataset", "views", "method", "baseline", "metric"])
        main = gains[gains["method"].isin(("distance", "attention"))]
        verdicts = verdicts_table("All views − the original image", main, ["method", "metric"])
        views = rows.assign(views=rows["views"].map("{:g} views".format))
        tables = [
            judged_table("changes", "All views − the original image", gains, ["dataset", "method", "metric", "errors"]),
            judged_table(
                "against",
                "NLL of attention, same views and calibration",
                ours,
                ["dataset", "views", "method", "baseline"],
            ),
            scores_table("views", "Scores by number of views", views, ["views", "method"], SCORES),
        ]
    return Section(
        "tta",
        "Test-time augmentation",
        "Predictions are averaged over an image and its augmented copies (views), the same for every method; "
        "calibrations are refitted.",
        figures,
        tables,
        "dvc repro tta",
        verdicts=verdicts,
    )


_VARIANTS = {
    "single": "one k",
    "k_ensemble": "k-ensemble",
    "adaptive_k": "adaptive k",
    "stopping": "learned stopping",
}


def ensemble(runs: Sequence[Run]) -> Section:
    rows, paired = joined(runs, "ensemble"), joined(runs, "ensemble_paired")
    figures, tables, verdicts = [], [], []
    if len(rows):
        paired = paired[paired["method"].isin(METHODS) & paired["metric"].isin(("nll", "accuracy"))]
        paired = paired.assign(variant=paired["variant"].map(_VARIANTS))
        tests = judged(paired, ["dataset", "variant", "method", "metric"])
        for dataset, own in tests[tests["metric"] == "nll"].groupby("dataset", sort=False):
            own = plots.by_method(own).assign(group=own["variant"])
            label = plots.better_side("nll", "difference from one k")
            figures.append((str(dataset), plots.forest_plot(own, f"{dataset}: NLL", label)))
        main = tests[(tests["method"] == OURS) & (tests["metric"] == "nll")]
        verdicts = verdicts_table("NLL − that of one k", main, ["variant"])
        named = rows.assign(variant=rows["variant"].map(_VARIANTS))
        tables = [
            judged_table(
                "tests",
                "Differences from one k",
                tests,
                ["dataset", "variant", "method", "metric", "errors"],
            ),
            scores_table("scores", "Scores and mean k", named, ["variant", "method"], (*SCORES, "mean_k")),
        ]
    if len(seeds := joined(runs, "ensemble_seeds")):
        tables.append(scores_table("seeds", "Mean of the predictions over seeds", seeds, ["source", "method"], SCORES))
    return Section(
        "ensemble",
        "More than one k",
        "Predictions averaged over several k (k-ensemble), a smaller k for queries whose weights are concentrated "
        "(adaptive k), and an average weighted by a trained stopping rule (learned stopping).",
        figures,
        tables,
        "dvc exp run -S 'ensemble.ks=[5,10,20]'",
        verdicts=verdicts,
    )


_INDEXES = {"flat_l2": "Flat L2", "flat_ip": "Flat IP", "hnsw": "HNSW", "ivf": "IVF"}
_INDEX_COLUMNS = {
    "build_s": "build, s",
    "memory_mib": "MiB",
    "batched_ms": "ms, in a batch",
    "single_p50_ms": "ms, single",
    "batched_speedup": "speed-up, in a batch",
    "single_speedup": "single",
    "recall_at_10": "recall@10 ↑",
}
_HEAD_COLUMNS = {"batched_ms": "ms, in a batch", "single_p50_ms": "ms, single", "over_distance_ms": "over distance"}


def profile(runs: Sequence[Run]) -> Section:
    rows, heads, paired = (joined(runs, f"profile{t}") for t in ("", "_heads", "_paired"))
    figures, tables, verdicts = [], [], []
    if len(rows):
        indexes: list[Row] = []
        for (dataset, index), own in rows.groupby(["dataset", "index"], sort=False):
            values = own.groupby("quantity")[["value", "low", "high"]].mean().to_dict("index")
            cells = [
                Cell(short(v["value"]), f"{short(v['low'])} … {short(v['high'])}" if v["low"] < v["high"] else "")
                if (v := values.get(quantity))
                else ""
                for quantity in _INDEX_COLUMNS
            ]
            indexes.append([str(dataset), _INDEXES[str(index)], *cells])
        for dataset, own in rows[rows["quantity"] == "batched_ms"].groupby("dataset", sort=False):
            means = own.groupby("index", sort=False)["value"].mean()
            names, colours = (
                [_INDEXES[str(i)] for i in means.index],
                ["#222222" if i[:4] == "flat" else "#882255" for i in means.index],
            )
            png = plots.bar_plot(
                names, (1e3 * means).tolist(), colours, f"{dataset}: search in a batch", "µs per query"
            )
            figures.append((str(dataset), png))
        timed: list[Row] = []
        for (dataset, head), own in heads.groupby(["dataset", "head"], sort=False):
            means = own.groupby("quantity")["value"].mean()
            timed.append([str(dataset), method_cell(str(head)), *(short(means[q]) for q in _HEAD_COLUMNS)])
        paired = paired[~paired["index"].str.startswith("flat") & (paired["metric"] == "nll")]
        tests = judged(paired.assign(index=paired["index"].map(_INDEXES)), ["dataset", "index", "method", "metric"])
        verdicts = verdicts_table("NLL of attention − with exact search", tests[tests["method"] == OURS], ["index"])
        about: list[Row] = [
            [str(v) for v in row]
            for row in joined(runs, "profile_about").drop_duplicates("quantity")[["quantity", "value"]].to_numpy()
        ]
        tables = [
            Table(
                "indexes",
                "Indexes: minimum … maximum over rounds",
                ["dataset", "index", *_INDEX_COLUMNS.values()],
                indexes,
            ),
            Table("heads", "Heads, ms per query", ["dataset", "head", *_HEAD_COLUMNS.values()], timed),
            judged_table("lost", "NLL − with exact search", tests, ["dataset", "index", "method", "errors"]),
            Table("machine", "Machine and settings", ["quantity", "value"], about),
        ]
    return Section(
        "profile",
        "Costs of a query",
        "Search of the test rows' neighbours, in a batch and one by one, and each head on them, on one machine; "
        "inexact where other processes kept it busy (load above 1.5 per core).",
        figures,
        tables,
        "dvc repro profile",
        verdicts=verdicts,
    )

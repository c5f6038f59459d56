"""The pictures of one dataset's section, as data URIs with a text for who cannot see them."""

import base64
from collections.abc import Sequence

import pandas as pd

from attnknn import plots as pictures
from attnknn.report.claims import CLAIMED, OURS
from attnknn.report.results import CLEAN, Run, joined
from attnknn.report.tables import UNDER_CONDITIONS

Pictures = list[tuple[str, str]]
_KINDS = {"noise": "noise", "imbalance": "long tail"}  # stage: first words of its conditions


def _embedded(name: str, found: list[tuple[str, bytes]]) -> Pictures:
    uri = "data:image/png;base64,"
    return [(f"{name}: {alt}", uri + base64.b64encode(png).decode("ascii")) for alt, png in found]


def comparisons(runs: Sequence[Run], methods: Sequence[str]) -> Pictures:
    """Attention less each base method."""
    paired = joined(runs, "paired")
    paired = paired[(paired["method"] == OURS) & paired["baseline"].isin(methods)]
    found = [
        (f"differences in {pictures.METRICS[m]}", pictures.differences(paired[paired["metric"] == m], m))
        for m in CLAIMED
    ]
    return _embedded(runs[0].dataset, found)


def reliability(runs: Sequence[Run], methods: Sequence[str]) -> Pictures:
    """A reliability diagram of each base method that has one."""
    bins = joined(runs, "reliability")
    found = [
        (f"reliability of {pictures.method_name(m)}", pictures.reliability(bins[bins["method"] == m], m))
        for m in methods
        if (bins["method"] == m).any()
    ]
    return _embedded(runs[0].dataset, found)


def curves(runs: Sequence[Run]) -> Pictures:
    """Training curves of the encoder and the head."""
    training, attention = [r.tables["training"] for r in runs], [r.tables["attention"] for r in runs]
    epoch = [{"epoch": r.json["train_embedder"]["best_epoch"]} for r in runs]
    kept = [e | {"val_accuracy": r.json["train_embedder"]["val_accuracy"]} for e, r in zip(epoch, runs, strict=True)]
    best = [t.nsmallest(1, "val_nll").iloc[0].to_dict() for t in attention]
    best = [{"epoch": b["epoch"], "val_nll": b["val_nll"]} for b in best]
    colour = pictures.method_colour
    loss, accuracy = {"loss": colour("distance")}, {"val_accuracy": colour("distance_vector")}
    nll = {"fit_loss": colour("distance"), "val_nll": colour("attention")}
    found = [
        ("encoder loss", pictures.curves(training, loss, epoch, title="Encoder: training loss", ylabel="loss")),
        (
            "encoder validation accuracy",
            pictures.curves(training, accuracy, kept, title="Encoder: kNN on val", ylabel="accuracy"),
        ),
        ("attention NLL", pictures.curves(attention, nll, best, title="Attention head", ylabel="loss")),
    ]
    return _embedded(runs[0].dataset, found)


def against_rate(runs: Sequence[Run], intervals: pd.DataFrame) -> Pictures:
    """NLL and accuracy against the share of wrong labels and against the long tail, of those that were run.

    Args:
        intervals: rows of condition, method, metric, value, low, high of this dataset, evaluate's own included.
    """
    found = []
    for stage, kind in _KINDS.items():
        if not any(stage in r.tables for r in runs):
            continue
        words = intervals["condition"].str.rsplit(" ", n=1)
        rows = intervals[words.str[0] == kind].assign(rate=words.str[1])
        rows = rows.assign(rate=rows["rate"].astype(float))
        whole = 1.0 if kind == "long tail" else 0.0
        if whole not in set(rows["rate"]):
            rows = pd.concat([intervals[intervals["condition"] == CLEAN].assign(rate=whole), rows])
        rows = rows[rows["method"].isin(UNDER_CONDITIONS)]
        mean = rows.groupby(["metric", "method", "rate"], sort=False).agg(
            value=("value", "mean"), low=("low", "min"), high=("high", "max")
        )
        for metric in ("nll", "accuracy"):
            table = mean.xs(metric, level="metric").reset_index()
            found.append((f"{pictures.METRICS[metric]} under {kind}", pictures.against_rate(table, metric, kind)))
    return _embedded(runs[0].dataset, found)


def forests(name: str, ablated: pd.DataFrame) -> Pictures:
    """What each part of the head changes, in NLL and accuracy."""
    others = ablated[ablated["group"] != "full"]
    found = [
        (f"ablation, {pictures.METRICS[m]}", pictures.forest(others[others["metric"] == m], m))
        for m in ("nll", "accuracy")
    ]
    return _embedded(name, found)

"""Are the probabilities true, and what can they be used for: calibration, abstention, prediction sets."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from attnknn.evaluation.method import Method
from attnknn.evaluation.opponents import BEST, FORMS, OURS, ROLES
from attnknn.report import plots
from attnknn.report.names import CALIBRATIONS, METRICS, method_colour
from attnknn.report.results import Run, by_dataset, joined
from attnknn.report.tables import Section, Table, judged_table, scores_table, verdicts_table
from attnknn.report.verdicts import judged

_FEWEST_ROWS = 5  # of a bin in the reliability plot


def calibration(runs: Sequence[Run], claims: pd.DataFrame) -> Section:
    """Reliability of attention and its opponents, and NLL and ECE of every method under every calibration."""
    main = claims[claims["clean"] & (claims["metric"] == "ece") & (claims["ours"] == OURS)]
    figures = []
    for name, mine in by_dataset(runs, "reliability").items():
        bins = joined(mine, "reliability").dropna(subset=["accuracy"])
        bins = bins.assign(x=bins["confidence"].round(2), value=bins["accuracy"])
        bins = bins[bins["count"] >= _FEWEST_ROWS].drop(columns=["low", "high"])
        diagonal = plots.Line("", "#999999", pd.DataFrame({"x": [0, 1], "value": [0, 1]}), thin=True)
        methods = list(dict.fromkeys(bins["method"]))
        if bins["x"].nunique() < 3:
            continue
        lines = [diagonal, *plots.method_lines(bins.sort_values("x"), "x", methods)]
        role_of = {base: role for role, bases in ({BEST: FORMS} | ROLES | {OURS: (OURS,)}).items() for base in bases}
        roles = [role_of[Method.parse(m).base] for m in methods]
        lines[1:] = [replace(line, colour=method_colour(r)) for line, r in zip(lines[1:], roles, strict=True)]
        figures.append((name, plots.line_plot(lines, f"{name}: reliability", "confidence", "accuracy")))
    tables, rows = [], []
    for run in runs:
        for method, values in run.json["evaluate"].items():
            base, _, kind = method.rpartition("_")
            base, kind = (base, kind) if kind in CALIBRATIONS else (method, "")
            shared = {"dataset": run.dataset, "digits": run.digits, "low": None, "high": None}
            rows += [shared | {"method": base, "kind": kind, "metric": m, "value": values[m]} for m in ("nll", "ece")]
    table = pd.DataFrame(rows)
    table = table[table["method"].isin(table.loc[table["kind"] != "", "method"])]
    for metric in ("nll", "ece") if len(table) else ():
        of_metric = table[table["metric"] == metric].assign(
            metric=lambda t: t["kind"].map({"": "none", **CALIBRATIONS})
        )
        kinds = [k for k in ("none", *CALIBRATIONS.values()) if k in set(of_metric["metric"])]
        scored = scores_table(
            f"calibrated_{metric}", f"{METRICS[metric]} under each calibration", of_metric, ["method"], kinds
        )
        head = ["method", *kinds]
        tables.append(Table(scored.name, scored.caption, head, scored.rows))
    return Section(
        "calibration",
        "Calibration",
        "Fitted on fit rows, kept where they lower the NLL on val rows. Bins of at least "
        f"{_FEWEST_ROWS} rows; below the diagonal is overconfident.",
        figures,
        tables,
        "dvc repro evaluate",
        verdicts=verdicts_table("ECE of attention −", main, ["method"]),
    )


def _base(method: str) -> str:
    """A method without its calibration, which is chosen on val and differs by seed."""
    return method.partition("_")[0]


_RIVALS = ("distance", "linear", "logistic")


def selective(runs: Sequence[Run]) -> Section:
    curves, scores, paired = (joined(runs, t) for t in ("risk_coverage", "selective", "selective_paired"))
    figures, tables, verdicts = [], [], []
    for dataset, own in curves.groupby("dataset", sort=False) if len(curves) else ():
        rows = own.assign(method=own["method"].map(_base), x=100 * own["coverage"], value=100 * own["risk"])
        lines = plots.method_lines(rows, "x", ["attention", *_RIVALS])
        png = plots.line_plot(
            lines, f"{dataset}: risk", "rows answered, most confident first (%)", "errors (%)", zero=True
        )
        figures.append((str(dataset), png))
    if len(scores):
        scores, paired = (
            scores.assign(method=scores["method"].map(_base)),
            paired.assign(baseline=paired["baseline"].map(_base)),
        )
        tests = judged(paired[paired["metric"] == "aurc"], ["dataset", "baseline", "metric"])
        tests = tests.assign(digits=tests["digits"] + 1)
        main = tests[tests["baseline"].isin(_RIVALS)]
        verdicts = verdicts_table("Attention's AURC −", main, ["baseline"])
        sets = joined(runs, "conformal").melt(
            ["dataset", "seed", "digits", "method", "kind", "alpha"], ["coverage", "size", "worst_class"], "metric"
        )
        sets = sets.assign(
            method=sets["method"].map(_base), alpha=sets["alpha"].map("α {:g}".format), low=None, high=None
        )
        tables = [
            judged_table(
                "aurc",
                "AURC of attention − that of each method",
                tests,
                ["dataset", "baseline", "errors"],
            ),
            scores_table(
                "areas", "Areas under risk over coverage", scores.assign(digits=4), ["method"], ("aurc", "eaurc")
            ),
            scores_table(
                "sets",
                "Conformal prediction sets",
                sets,
                ["alpha", "kind", "method"],
                ("coverage", "size", "worst_class"),
            ),
        ]
    return Section(
        "selective",
        "Abstention and prediction sets",
        "Errors among the rows answered, the least confident left out; AURC is the area under this curve. Conformal "
        "sets of classes hold the true one with a chosen probability.",
        figures,
        tables,
        "dvc repro evaluate",
        verdicts=verdicts,
    )

"""What the parts of head and encoder do, how training went, abstention, and checks of theory."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnknn.report import plots
from attnknn.report.names import METHODS, method_colour, method_name
from attnknn.report.results import Run, by_dataset, differences, joined
from attnknn.report.tables import (
    Row,
    Section,
    Table,
    difference_cell,
    fixed,
    interval,
    judged_table,
    method_cell,
    scores_table,
    short,
    verdicts_table,
)
from attnknn.report.verdicts import FEWEST_ERRORS, judged, over_runs

GROUPS = {
    "without": ("Without one part", "#0072b2"),
    "with": ("With one part more", "#56b4e9"),
    "alone": ("One part alone", "#009e73"),
    "retrieval": ("Retrieval head, one part changed", "#cc79a7"),
    "reference": ("For reference", "#7f7f7f"),
}
SCORES = ("accuracy", "nll", "ece")


def ablation(runs: Sequence[Run]) -> Section:
    rows, figures, tables = joined(runs, "ablation"), [], []
    if len(rows):
        rows = rows.assign(**{name: rows[name].str.replace("_", " ") for name in ("variant", "reference")})
        trained = rows.set_index(["dataset", "variant"])["trained"].to_dict()
        rows = rows[rows["variant"] != rows["reference"]]
        means = over_runs(rows, ["dataset", "group", "variant", "reference", "metric"])
        means = means.sort_values("group", key=lambda g: g.map(list(GROUPS).index), kind="stable")
        drawn = means[(means["metric"] == "nll") & means["group"].isin(("without", "with", "reference"))]
        names = drawn[["dataset", "variant", "reference"]].itertuples(index=False)
        shown = [{trained.get((d, v), "yes"), trained.get((d, r), "yes")} == {"yes"} for d, v, r in names]
        drawn = drawn.loc[np.array(shown, dtype=bool)]
        for dataset, own in drawn.groupby("dataset", sort=False):
            own = own.assign(
                label=own["variant"],
                colour=[GROUPS[g][1] for g in own["group"]],
                group=[GROUPS[g][0] for g in own["group"]],
            )
            label = plots.better_side("nll", "difference from its reference")
            figures.append((str(dataset), plots.forest_plot(own, f"{dataset}: NLL", label)))
        columns = rows.groupby(["dataset", "variant", "metric"])[["fit", "validation", "value"]].mean().to_dict("index")
        lines: list[Row] = []
        for (dataset, group), own in means.groupby(["dataset", "group"], sort=False):
            lines.append([f"{dataset}, {GROUPS[str(group)][0].lower()}"])
            for row in own[own["metric"] == "nll"].to_dict("records"):
                scores = columns[dataset, row["variant"], "nll"].values()
                numbers = ("" if math.isnan(score) else fixed(score, row["digits"]) for score in scores)
                states = [trained.get((dataset, row[column]), "yes") for column in ("variant", "reference")]
                difference = difference_cell(row) if states == ["yes", "yes"] else states[0]
                if states[0] == "yes" != states[1]:
                    difference = f"{row['reference']} {states[1]}"
                lines.append([row["variant"], row["reference"], *numbers, difference])
        head = ["variant", "against", "NLL on fit ↓", "NLL on val ↓", "NLL on test ↓", "difference"]
        tables = [Table("ablation", "All variants; intervals without the variation between fits", head, lines)]
    return Section(
        "ablation",
        "Ablation of the attention head",
        "A head that ends above one that it contains did not train; one that no epoch improves on val rows kept its "
        "start.",
        figures,
        tables,
        "dvc repro ablation",
    )


def encoder_ablation(runs: Sequence[Run]) -> Section:
    rows, figures, tables, verdicts = joined(runs, "encoder_ablation"), [], [], None
    if len(rows):
        paired = differences(rows[rows["metric"].isin(("accuracy", "nll"))]).rename(columns={"source": "variant"})
        tests = judged(paired, ["dataset", "variant", "method", "metric"])
        main = tests[(tests["method"] == "attention") & (tests["metric"] == "nll")]
        verdicts = verdicts_table("NLL of attention, configured encoder −", main, ["dataset", "variant"])
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


def _base(method: str) -> str:
    """A method without its calibration, which is chosen on val and differs by seed."""
    return method.partition("_")[0]


def selective(runs: Sequence[Run]) -> Section:
    curves, scores, paired = (joined(runs, t) for t in ("risk_coverage", "selective", "selective_paired"))
    figures, tables, verdicts = [], [], None
    for dataset, own in curves.groupby("dataset", sort=False) if len(curves) else ():
        rows = own.assign(method=own["method"].map(_base), x=100 * own["coverage"], value=100 * own["risk"])
        lines = plots.method_lines(rows, "x", list(dict.fromkeys(rows["method"])))
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
        main = tests[tests["baseline"].isin(("distance", "linear", "logistic"))]
        verdicts = verdicts_table("Attention's AURC −", main, ["dataset", "baseline"])
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


def training(runs: Sequence[Run]) -> Section:
    figures = []
    for dataset, own in by_dataset(runs, "attention").items():
        rows, kept = (
            joined(own, "attention"),
            {r.tables["attention"].nsmallest(1, "val_nll")["epoch"].item() for r in own},
        )
        lines = [
            plots.Line(
                name, colour, rows.assign(x=rows["epoch"], value=rows[column]), kept if column == "val_nll" else ()
            )
            for name, column, colour in (
                ("fit loss", "fit_loss", "#7f7f7f"),
                ("NLL on val", "val_nll", method_colour("attention")),
            )
        ]
        figures.append((f"{dataset}, head", plots.line_plot(lines, f"{dataset}: attention head", "epoch")))
    tuned: list[Row] = []
    for run in runs:
        for method, values in run.json.get("tuned", {}).items():
            text = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
            if "unchanged" not in values:
                tuned.append([run.dataset, str(run.seed), method_cell(method), text])
    return Section(
        "training",
        "Training and tuned values",
        "Dots mark the epoch that was kept; epoch 0 of the head is tuned distance weighting.",
        figures,
        [
            Table(
                "tuned",
                "Tuned or fitted values; what is missing did not lower the NLL on val",
                ["dataset", "seed", "method", "values"],
                tuned,
            )
        ],
        "dvc repro train_attention",
    )


SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "undecided"


def _theory_rows(run: Run) -> list[Row]:
    """Claim, method, numbers and verdict on each claim that one run can test."""
    q: dict[Any, dict[Any, float]] = run.tables["theory"].set_index(["quantity", "item"]).to_dict("index")  # type: ignore[assignment]

    def word(low: float, high: float, target: float, method: str) -> str:
        """Supported where the interval lies above the target, contradicted below; by the errors of the method."""
        errors = round((1 - run.json["evaluate"][method]["accuracy"]) * run.json["prepare"]["test"])
        if errors < FEWEST_ERRORS:
            return f"no verdict: {errors} errors"
        return SUPPORTED if low > target else CONTRADICTED if high < target else OPEN

    norms = q["norm", "min"]["value"], q["norm", "max"]["value"]
    unit = max(abs(norm - 1) for norm in norms) < 1e-3
    same = q["same_order", "test rows"]["value"]
    rows: list[Row] = [
        [
            "Embeddings have unit length",
            "",
            f"norms {fixed(norms[0], 4)} … {fixed(norms[1], 4)}",
            SUPPORTED if unit else CONTRADICTED,
        ],
        [
            "Distance and inner product give one order",
            "",
            f"{100 * same:.2f} % of queries",
            SUPPORTED if same == 1 else CONTRADICTED,
        ],
    ]
    for method in METHODS:
        if row := q.get(("sqrt_n_less_best_other", method)):
            best = f"best k on val {q['best_k', method]['value']:g}; NLL at √n − that {interval(row, 4, True)}"
            rows.append(["k = √n is best", method_cell(method), best, word(-row["high"], -row["low"], 0, method)])
        if row := q.get(("fit_c", method)):
            # 1/k needs a falling error, an exponent whose interval holds 1, and is narrower than 0.5 … 2.
            b, narrow = q["fit_b", method], 0.5 <= row["low"] <= 1 <= row["high"] <= 2
            verdict = word(b["low"], b["high"], 0, method)
            verdict = (
                verdict
                if verdict != SUPPORTED or narrow
                else CONTRADICTED
                if not row["low"] <= 1 <= row["high"]
                else OPEN
            )
            text = f"a + b·k⁻ᶜ: c {fixed(row['value'], 2)} ({interval(row, 2)}), b {interval(b, 4)}"
            rows.append(["The error falls as 1/k", method_cell(method), text, verdict])
    for claim, quantity in (
        ("Entropy predicts errors", "entropy_auc"),
        ("The class prior's weight predicts errors", "null_mass_auc"),
    ):
        if (row := q.get((quantity, "test rows"))) and row["value"] == row["value"]:
            text = f"AUC {fixed(row['value'], 3)} ({interval(row, 3)})"
            rows.append([claim, method_cell("attention"), text, word(row["low"], row["high"], 0.5, "attention")])
    return rows


def theory(runs: Sequence[Run]) -> Section:
    own = [run for run in runs if "theory" in run.tables]
    lines = [[run.dataset, str(run.seed), *row] for run in own for row in _theory_rows(run)]
    figures, tables = [], []
    for dataset, group in by_dataset(runs, "theory_fit").items():
        curve = joined(group, "theory_fit")
        drawn = plots.method_lines(curve.assign(value=curve["error"]), "k", METHODS)
        fitted = plots.method_lines(curve.drop(columns=["low", "high"]).assign(value=curve["fitted"]), "k", METHODS)
        drawn += [plots.Line("", line.colour, line.points, dashed=True, thin=True) for line in fitted]
        png = plots.line_plot(
            drawn, f"{dataset}: error, a + b·k⁻ᶜ dashed", "neighbours k", ticks=sorted(set(curve["k"]))
        )
        figures.append((dataset, png))
    if lines:
        values: list[Row] = [
            [
                r["dataset"],
                str(r["seed"]),
                r["quantity"].replace("_", " "),
                method_name(str(r["item"])),
                short(r["value"]),
                interval(r, 4),
            ]
            for r in joined(runs, "theory").to_dict("records")
        ]
        tables = [
            Table("claims", "Claims", ["dataset", "seed", "claim", "method", "measured", "verdict"], lines),
            Table(
                "quantities", "All measurements", ["dataset", "seed", "quantity", "item", "value", "interval"], values
            ),
        ]
    return Section(
        "theory",
        "Theory",
        "Bounded norms, k = √n, an error that falls as 1/k, and entropy that predicts errors, each tested on the "
        "dataset's own embeddings and predictions.",
        figures,
        tables,
        "dvc repro theory",
    )

"""Claims of theory, tested on a dataset's own embeddings and predictions."""

from collections.abc import Sequence
from typing import Any

from attnknn.evaluation.opponents import OURS
from attnknn.report import plots
from attnknn.report.names import METHODS, method_name
from attnknn.report.results import Run, by_dataset, joined
from attnknn.report.tables import Cell, Row, Section, Table, fixed, interval, method_cell, short
from attnknn.report.verdicts import FEWEST_ERRORS

SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "undecided"


def _theory_rows(run: Run) -> list[Row]:
    """Claim, method, numbers and verdict on each claim that one run can test."""
    q: dict[Any, dict[Any, float]] = run.tables["theory"].set_index(["quantity", "item"]).to_dict("index")  # type: ignore[assignment]

    def word(low: float, high: float, target: float, method: str) -> str:
        """Supported where the interval lies above the target, contradicted below; by the errors of the method."""
        errors = round((1 - run.json["evaluate"][method]["accuracy"]) * run.json["prepare"]["test"])
        if errors < FEWEST_ERRORS:
            return f"no verdict: {errors} error{'s' * (errors != 1)}"
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
            text = f"AUC {fixed(row['value'], 3)}" + f" ({interval(row, 3)})" * (row["low"] == row["low"])
            rows.append([claim, method_cell("attention"), text, word(row["low"], row["high"], 0.5, "attention")])
    return rows


def theory(runs: Sequence[Run]) -> Section:
    own = [run for run in runs if "theory" in run.tables]
    lines = [[run.dataset, str(run.seed), *row] for run in own for row in _theory_rows(run)]
    figures, tables, verdicts = [], [], []
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
        main: list[Row] = []
        for dataset, group in by_dataset(runs, "theory").items():
            main.append([dataset])
            for run in group:
                seed = f", seed {run.seed}" * (len(group) > 1)
                rows = [row for row in _theory_rows(run) if isinstance(row[1], Cell) and row[1].method == OURS]
                main += [[f"{claim}{seed}", Cell(str(verdict), str(text))] for claim, _, text, verdict in rows]
        verdicts = [Table("verdicts", "Claims, by attention", ["Claims, by attention", "verdict"], main)]
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
        verdicts=verdicts,
    )

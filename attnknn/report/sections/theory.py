"""Predictions of theory tested on measurements; every verdict can be supported, contradicted or undecided."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS
from attnknn.report.plots import method_colour, method_name
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.tables import by_dataset, distinct, fixed, interval, method_cell, score_cell

QUANTITIES, CURVE, ENTROPY = "theory", "theory_fit", "theory_entropy"
TABLES: dict[str, tuple[str, ...]] = {
    QUANTITIES: ("quantity", "item", "value", "low", "high"),
    CURVE: ("method", "k", "error", "fitted", "low", "high"),
    ENTROPY: ("decile", "rows", "lowest", "highest", "entropy", "null_mass", "error", "low", "high"),
}
KNN = ("uniform", "distance", "attention")
RATE = (0.5, 2.0)  # an exponent's interval beyond these does not distinguish 1/k from 1/√k or 1/k²
FITS = 0.9  # smallest R² of a fitted curve
TOLERANCE = 1e-3  # deviation of a norm from 1 that counts as unit length
Verdict = Literal["supported", "contradicted", "undecided"]
NOTE = (
    f"O(1/k) needs b > 0 and c = 1 in a + b·k^(−c): an interval of c within {RATE[0]:g} … {RATE[1]:g} that contains 1, "
    f"and R² ≥ {FITS:g}. √n is the best k where val chooses it and it beats the best other k on test."
)


def root_verdict(best: set[int], root: int, ends: set[int], low: float, high: float, errors: int) -> Verdict:
    """Whether √n is the best k.

    Args:
        best: the k chosen on val, of all seeds.
        ends: the largest k swept, of all seeds.
        low, high: interval of NLL at √n minus that at the best other k on val, on test.
        errors: wrong test rows.
    """
    if errors < FEWEST_ERRORS or best & ends:
        return "undecided"
    if low > 0:
        return "contradicted"
    return "supported" if best == {root} and high < 0 else "undecided"


def rate_verdict(b: tuple[float, float], c: tuple[float, float], r2: float, errors: int) -> Verdict:
    """Whether the error falls as b/k towards its limit.

    Args:
        b, c: intervals of a + b·k^(−c).
        r2: coefficient of determination of the fit.
        errors: wrong test rows at the k that has most.
    """
    if errors < FEWEST_ERRORS:
        return "undecided"
    if b[1] < 0 or (b[0] > 0 and not c[0] <= 1 <= c[1]):
        return "contradicted"
    narrow = RATE[0] <= c[0] <= 1 <= c[1] <= RATE[1]
    return "supported" if b[0] > 0 and narrow and r2 >= FITS else "undecided"


def auc_verdict(low: float, high: float, errors: int) -> Verdict:
    """Whether a quantity is larger for wrong answers, by the interval of the AUC; NaN without one."""
    if errors < FEWEST_ERRORS or not (low > 0.5 or high < 0.5):
        return "undecided"
    return "supported" if low > 0.5 else "contradicted"


def _small(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


class _Quantities:
    """Values over seeds by quantity and item: value (mean), sd, low and high (outer ends)."""

    def __init__(self, quantities: pd.DataFrame) -> None:
        means = mean_over_runs(quantities, ["quantity", "item"])
        self.rows: dict[tuple[str, str], dict[Any, float]] = means.to_dict("index")  # type: ignore[assignment]
        self.per_seed = quantities

    def items(self, quantity: str) -> list[str]:
        return [item for q, item in self.rows if q == quantity]

    def __call__(self, quantity: str, item: str = "test rows") -> dict[Any, float]:
        return self.rows[quantity, item]

    def each(self, quantity: str, item: str) -> set[int]:
        """The values of all seeds, whole numbers."""
        rows = self.per_seed[(self.per_seed["quantity"] == quantity) & (self.per_seed["item"] == item)]
        return {int(v) for v in rows["value"]}


def claims_table(quantities: pd.DataFrame, curve: pd.DataFrame, deciles: pd.DataFrame, test_rows: int) -> Table:
    """The verdict on each claim, and its numbers."""
    q = _Quantities(quantities)
    shortest, longest = q("norm", "min")["value"], q("norm", "max")["value"]
    unit = max(abs(shortest - 1), abs(longest - 1)) <= TOLERANCE
    same, gap = q("same_order")["value"], q("largest_gap")["value"]
    order = f"{100 * same:.2f} % of the queries; largest |−‖q − k‖² − (2 q·k − 2)| {_small(gap)}"
    rows: list[Row] = [
        [
            "Unit length",
            "",
            "supported" if unit else "contradicted",
            f"norms {fixed(shortest, 4)} … {fixed(longest, 4)}",
        ],
        ["Distance and inner product give one order", "", "supported" if same == 1 else "contradicted", order],
    ]
    wrong = (deciles["rows"] * deciles["error"]).groupby(deciles["seed"]).sum()
    errors = round(float(wrong.min()))
    root, ends = max(q.each("sqrt_n", "bank")), q.each("largest_k", "swept")
    for m in q.items("best_k"):
        best = q.each("best_k", m)
        verdict, numbers = "undecided", "√n was not swept"
        if ("sqrt_n_less_best_other", m) in q.rows:
            row = q("sqrt_n_less_best_other", m)
            verdict = root_verdict(best, root, ends, row["low"], row["high"], errors)
            nll_root, nll_other = (fixed(q(name, m)["value"], 4) for name in ("nll_sqrt_n", "nll_best_other_k"))
            others = distinct(q.each("best_other_k", m))
            numbers = f"NLL {nll_root} at √n, {nll_other} at k = {others}, difference {interval(row, 4, True)}"
        best_k = f"best k {distinct(best)}{', the largest swept' if best & ends else ''}"
        rows.append([f"√n = {root} is the best k", method_cell(m), verdict, f"{best_k}; {numbers}"])
    for m in q.items("fit_b"):
        b, c, r2 = q("fit_b", m), q("fit_c", m), q("fit_r2", m)["value"]
        most = round(curve.loc[curve["method"] == m, "error"].max() * test_rows)
        verdict = rate_verdict((b["low"], b["high"]), (c["low"], c["high"]), r2, most)
        numbers = (
            f"c {fixed(c['value'], 2)} ({interval(c, 2)}), b {fixed(b['value'], 4)} ({interval(b, 4)}), R² {r2:.2f}"
        )
        if b["value"] == b["low"] == b["high"] == 0:
            numbers = "the error is the same at every k"
        rows.append(["The error falls as 1/k", method_cell(m), verdict, numbers])
    if not q.items("fit_b"):
        rows.append(["The error falls as 1/k", "", "undecided", "too few k to fit a curve"])
    for claim, quantity in (("Entropy predicts errors", "entropy_auc"), ("Null mass predicts errors", "null_mass_auc")):
        auc = q(quantity)
        numbers = "no errors, or no right answers"
        if auc["value"] == auc["value"]:
            numbers = f"AUC {score_cell(auc, 3)}, {errors} errors"
        rows.append([claim, method_cell("attention"), auc_verdict(auc["low"], auc["high"], errors), numbers])
    return Table("claims", "Claims of the theory", ["claim", "method", "verdict", "numbers"], rows, folded=False)


def pictures(curve: pd.DataFrame, deciles: pd.DataFrame) -> list[tuple[str, bytes]]:
    """The error over k with fitted curves, if any, and the error by decile of entropy."""
    drawn = []
    if not curve.empty:
        present = [m for m in KNN if m in set(curve["method"])]
        measured = curve.rename(columns={"error": "value"})
        fitted = curve[["method", "k", "fitted"]].rename(columns={"fitted": "value"})
        lines = plots.method_lines(measured, "k", present)
        for line in plots.method_lines(fitted, "k", present):
            lines.append(replace(line, name="", dashed=True, thin=True))
        text, label = "Error, and a + b·k⁻ᶜ dashed", "neighbours k"
        drawn.append(
            ("error over k with fitted curves", plots.line_plot(lines, text, label, ticks=sorted(set(curve["k"]))))
        )
    means = mean_over_runs(deciles.rename(columns={"error": "value"}), ["decile"]).reset_index()
    rows = means.assign(label=means["decile"].map("{:g}".format), colour=method_colour("attention"))
    label = "error, by decile of entropy (10: highest)"
    png = plots.forest_plot(rows, "Attention: error by entropy", label, zero=None, key="value")
    return [*drawn, ("error by entropy of the attention weights", png)]


def _tables(quantities: pd.DataFrame, curve: pd.DataFrame, deciles: pd.DataFrame) -> list[Table]:
    def text(value: float) -> str:
        return "" if value != value else _small(float(value))

    def item(name: str) -> str:
        return method_name(name) if name in KNN else name

    seeds = quantities["seed"].nunique() > 1
    columns = ["value", "low", "high", *(["sd"] if seeds else [])]
    rows = [
        [quantity.replace("_", " "), item(name), *(text(row[c]) for c in columns)]
        for (quantity, name), row in _Quantities(quantities).rows.items()
    ]
    head = ["quantity", "item", "value", "low", "high", *(["sd over seeds"] if seeds else [])]
    tables = [Table("quantities", "All measurements", head, rows)]
    if not curve.empty:
        means = curve.groupby(["method", "k"], sort=False)[["error", "fitted"]].mean()
        rows = [[item(m), str(k), *(fixed(value, 4) for value in row)] for (m, k), row in means.iterrows()]  # type: ignore[misc]
        tables.append(Table("curve", "The error at each k, and as fitted", ["method", "k", "error", "fitted"], rows))
    means = deciles.groupby("decile")[["entropy", "null_mass", "error"]].mean()
    rows = [[f"{decile:g}", *(fixed(value, 3) for value in row)] for decile, row in means.iterrows()]  # type: ignore[str-format]
    head = ["decile", "entropy / log k", "null mass", "error"]
    return [*tables, Table("entropy", "Deciles of the test rows by entropy of attention's weights", head, rows)]


def _part(runs: Sequence[Run]) -> Part:
    measured = joined(runs, QUANTITIES), joined(runs, CURVE), joined(runs, ENTROPY)
    table = claims_table(*measured, min(r.json["prepare"]["test"] for r in runs))
    return Part(runs[0].dataset, pictures(*measured[1:]), [table, *_tables(*measured)])


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "theory",
        "Theory",
        "Bounded norms, distance and inner product as equivalents, k = √n, an error that falls as 1/k, and entropy "
        "that predicts errors: each is tested on the dataset's own embeddings and predictions.",
        by_dataset(runs, _part, QUANTITIES, ENTROPY),
        NOTE,
        "dvc repro theory",
    )

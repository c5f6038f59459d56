"""What theory assumes or claims, beside what was measured; every claim can come out contradicted or undecided."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from attnknn.report.claims import FEWEST_ERRORS
from attnknn.report.gains import FITS, RATE, rate_verdict
from attnknn.report.plots import INK, as_png, method_colour, method_name, new_figure, style_axes
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import by_dataset, fixed

FOUND, CURVE, ENTROPY = "theory", "theory_fit", "theory_entropy"
TABLES: dict[str, tuple[str, ...]] = {
    FOUND: ("quantity", "item", "value", "low", "high"),
    CURVE: ("method", "k", "error", "fitted", "low", "high"),
    ENTROPY: ("decile", "rows", "lowest", "highest", "entropy", "null_mass", "error", "low", "high"),
}
KNN = ("uniform", "distance", "attention")
TOLERANCE = 1e-3  # of a length that counts as 1
Verdict = Literal["supported", "contradicted", "undecided"]
NOTE = (
    "The historic study listed these as verified without a test. The error is fitted by a + b·k^(−c) over the swept k; "
    "the claim O(1/k) needs b > 0 and c = 1. It is supported where the interval of b lies above 0, that of c holds 1 "
    f"and lies within {RATE[0]:g} … {RATE[1]:g}, and the curve fits (R² ≥ {FITS:g}); contradicted where b lies below 0 "
    "or c's interval leaves 1 out while b is above 0; undecided otherwise. c above 1 is faster than 1/k, which a bound "
    "from above would allow and a rate would not. √n is the best k where val chooses it and its NLL on test is "
    "lower than that of the best other k on val, with an interval below 0; contradicted where it is higher, with one "
    "above 0; undecided where val chooses the largest k swept, beyond which a better one may lie. "
    "Several seeds show means, and the furthest ends of their intervals. "
    "Entropy is that of the neighbours' weights among themselves, without the null neighbours. "
    f"With fewer than {FEWEST_ERRORS} wrong test rows claims about errors stay undecided."
)


def root_verdict(best: set[int], root: int, ends: set[int], low: float, high: float, errors: int) -> Verdict:
    """Is √n the best k?

    Args:
        best: the k chosen on val, of all seeds.
        ends: the largest k swept, of all seeds.
        low, high: interval of NLL at √n less that at the best other k on val, on test.
        errors: wrong test rows.
    """
    if errors < FEWEST_ERRORS or best & ends:
        return "undecided"
    if low > 0:
        return "contradicted"
    return "supported" if best == {root} and high < 0 else "undecided"


def auc_verdict(low: float, high: float, errors: int) -> Verdict:
    """Is it larger where the answer is wrong? By the interval of the AUC, NaN where there is none."""
    if errors < FEWEST_ERRORS or not (low > 0.5 or high < 0.5):
        return "undecided"
    return "supported" if low > 0.5 else "contradicted"


def _small(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def _ends(row: Any, digits: int, sign: bool = False) -> str:
    return f"{fixed(row['low'], digits, sign)} … {fixed(row['high'], digits, sign)}"


class _Quantities:
    """Values over seeds by quantity and item: value (mean), sd, low and high (furthest ends)."""

    def __init__(self, found: pd.DataFrame) -> None:
        of = found.groupby(["quantity", "item"], sort=False)
        table = of.agg(value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max"))
        self.rows = {(str(q), str(i)): row for (q, i), row in zip(table.index, table.to_dict("records"), strict=True)}
        self.all = found

    def curve(self, item: str, ks: np.ndarray) -> np.ndarray:
        """a + b·k^(−c) of a method, the mean over seeds."""
        of = self.all[self.all["item"] == item].pivot(index="seed", columns="quantity", values="value")
        a, b, c = (of[name].to_numpy()[:, None] for name in ("fit_a", "fit_b", "fit_c"))
        return (a + b * ks**-c).mean(0)

    def items(self, quantity: str) -> list[str]:
        return [item for q, item in self.rows if q == quantity]

    def __call__(self, quantity: str, item: str = "test rows") -> dict[Any, float]:
        return self.rows[quantity, item]

    def each(self, quantity: str, item: str) -> set[int]:
        """The values of all seeds, whole numbers."""
        of = self.all[(self.all["quantity"] == quantity) & (self.all["item"] == item)]
        return {int(v) for v in of["value"]}


def sentences(found: pd.DataFrame, curve: pd.DataFrame, deciles: pd.DataFrame, test_rows: int) -> list[str]:
    """One a claim: the verdict and the numbers it rests on.

    Args:
        found: rows of quantity, item, value, low, high, of all seeds.
        curve: rows of method, k, error; may be empty.
        deciles: rows of seed, rows, error.
        test_rows: how many there are.
    """
    q = _Quantities(found)
    short, long = q("norm", "min")["value"], q("norm", "max")["value"]
    unit = max(abs(short - 1), abs(long - 1)) <= TOLERANCE
    said = [f"Unit length: {'supported' if unit else 'contradicted'} (norms {fixed(short, 4)} … {fixed(long, 4)})."]
    same, gap = q("same_order")["value"], q("largest_gap")["value"]
    said.append(
        f"Distance and inner product order neighbours alike: {'supported' if same == 1 else 'contradicted'} "
        f"({100 * same:.2f} % of the queries; largest |−‖q − k‖² − (2 q·k − 2)| {_small(gap)})."
    )
    wrong = (deciles["rows"] * deciles["error"]).groupby(deciles["seed"]).sum()
    errors = round(float(wrong.min()))
    root, ends, told = q.each("sqrt_n", "bank"), q.each("largest_k", "swept"), []
    for m in q.items("best_k"):
        best = q.each("best_k", m)
        shown = f"{method_name(m)} {'/'.join(map(str, sorted(best)))}"
        if ("sqrt_n_less_best_other", m) in q.rows:
            row, others = q("sqrt_n_less_best_other", m), sorted(q.each("best_other_k", m))
            verdict = root_verdict(best, max(root), ends, row["low"], row["high"], errors)
            at_root, at_other = (fixed(q(name, m)["value"], 4) for name in ("nll_sqrt_n", "nll_best_other_k"))
            pair = f"NLL {at_root} at √n, {at_other} at k = {'/'.join(map(str, others))}"
            end = ", the largest k swept" if best & ends else ""
            told.append(f"{verdict} for {shown}{end} ({pair}, difference {_ends(row, 4, True)})")
        else:
            told.append(f"undecided for {shown} (√n was not swept)")
    said.append(f"√n = {max(root)} is the best k: {'; '.join(told)}.")
    rates = []
    for m in q.items("fit_b"):
        b, c, r2 = q("fit_b", m), q("fit_c", m), q("fit_r2", m)["value"]
        most = round(curve.loc[curve["method"] == m, "error"].max() * test_rows)
        verdict = rate_verdict((b["low"], b["high"]), (c["low"], c["high"]), r2, most)
        numbers = f"c {fixed(c['value'], 2)} ({_ends(c, 2)}), b {fixed(b['value'], 4)} ({_ends(b, 4)}), R² {r2:.2f}"
        if b["value"] == b["low"] == b["high"] == 0:
            numbers = "the error does not move with k"
        rates.append(f"{verdict} for {method_name(m)} ({numbers})")
    said.append(f"The error falls as 1/k: {'; '.join(rates) or 'too few k to fit a curve'}.")
    heads = q.items("temperature")
    taus = [f"{_small(q('temperature_start', h)['value'])} → {_small(q('temperature', h)['value'])}" for h in heads]
    said.append(f"Temperature, start → learned, of each head: {', '.join(taus)}.")
    entropy, null = q("entropy"), q("null_mass")
    said.append(
        f"Attention's weights have a mean entropy of {fixed(entropy['value'], 3)} of log k ({_ends(entropy, 3)}) and "
        f"leave {fixed(null['value'], 3)} to the null neighbours ({_ends(null, 3)})."
    )
    for claim, quantity in (("Spread-out weights go", "entropy_auc"), ("Much mass on the null goes", "null_mass_auc")):
        auc = q(quantity)
        verdict = auc_verdict(auc["low"], auc["high"], errors)
        ends = f" ({_ends(auc, 3)})" if auc["low"] == auc["low"] else ""
        known = auc["value"] == auc["value"]
        number = f"AUC {fixed(auc['value'], 3)}{ends}, {errors} wrong" if known else "none is wrong, or all are"
        said.append(f"{claim} with wrong answers: {verdict} ({number}).")
    return said


def picture(found: pd.DataFrame, curve: pd.DataFrame, deciles: pd.DataFrame) -> bytes:
    """The error against k with the fitted curves, where there are some, and the error in each tenth by entropy.

    Args:
        found: rows of seed, quantity, item, value, low, high.
        curve: rows of method, k, error, low, high, of all seeds; empty where nothing was fitted.
        deciles: rows of decile, entropy, error, low, high, of all seeds.
    """
    panels = 1 + (not curve.empty)
    figure = new_figure(3.4, 2.4 * panels + 0.3)
    axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
    if not curve.empty:
        top = axes[0]
        mean = curve.groupby(["method", "k"]).agg(error=("error", "mean"), low=("low", "min"), high=("high", "max"))
        ks = sorted(curve["k"].unique())
        fine = np.geomspace(ks[0], ks[-1], 200)
        for i, m in enumerate(m for m in KNN if m in set(curve["method"])):
            of: Any = mean.loc[m]
            x = of.index.to_numpy() * 1.045 ** (i - 1)
            top.vlines(x, of["low"], of["high"], color=method_colour(m), lw=1.1, alpha=0.45)
            top.plot(x, of["error"], "o", ms=4, color=method_colour(m), label=method_name(m))
            top.plot(fine, _Quantities(found).curve(m, fine), lw=1.4, color=method_colour(m))
        top.set_xscale("log")
        shown = [k for i, k in enumerate(ks) if i in (0, len(ks) - 1) or (k / ks[i - 1] > 1.3 and ks[-1] / k > 1.35)]
        top.set_xticks(shown, [str(k) for k in shown])
        top.minorticks_off()
        top.set(xlabel="neighbours k", ylabel="error")
        top.set_title("Error and a + b·k⁻ᶜ", loc="left", size=9.5, weight="bold", color=INK)
        top.legend(fontsize=7, frameon=False)
    below, colour = axes[-1], method_colour("attention")
    of = deciles.groupby("decile").agg(error=("error", "mean"), low=("low", "min"), high=("high", "max"))
    below.bar(of.index, of["error"], color=colour, alpha=0.75, width=0.8)
    below.vlines(of.index, of["low"], of["high"], color=INK, lw=1)
    below.set_xticks(of.index)
    below.set(xlabel="tenth of the rows (10: most spread out)", ylabel="error")
    below.set_title("Attention: error by entropy", loc="left", size=9.5, weight="bold", color=INK)
    below.set_ylim(bottom=0)
    for one in axes:
        style_axes(one)
    return as_png(figure)


def _tables(found: pd.DataFrame, curve: pd.DataFrame, deciles: pd.DataFrame) -> list[Table]:
    def text(value: float) -> str:
        return "" if value != value else _small(float(value))

    def item(name: str) -> str:
        return method_name(name) if name in KNN else name

    seeds = found["seed"].nunique() > 1
    q = _Quantities(found)
    rows = [
        [quantity.replace("_", " "), item(i), text(r["value"]), text(r["low"]), text(r["high"])]
        + ([text(r["sd"])] if seeds else [])
        for (quantity, i), r in q.rows.items()
    ]
    head = ["quantity", "of", "value", "low", "high", *(["sd over seeds"] if seeds else [])]
    tables = [Table("quantities", "Everything measured", head, rows)]
    if not curve.empty:
        mean = curve.groupby(["method", "k"], sort=False)[["error", "fitted"]].mean().reset_index()
        points = [
            [item(r["method"]), str(r["k"]), fixed(r["error"], 4), fixed(r["fitted"], 4)]
            for r in mean.to_dict("records")
        ]
        tables.append(Table("curve", "The error at each k, and as fitted", ["method", "k", "error", "fitted"], points))
    columns = ("entropy", "null_mass", "error")
    tenths = deciles.groupby("decile")[list(columns)].mean().reset_index()
    rows = [[str(int(r["decile"])), *(fixed(r[c], 3) for c in columns)] for r in tenths.to_dict("records")]
    head = ["tenth", "entropy / log k", "null mass", "error"]
    return [*tables, Table("entropy", "Tenths of the test rows by entropy of attention's weights", head, rows)]


def _part(runs: Sequence[Run]) -> Part:
    found, deciles = joined(runs, FOUND), joined(runs, ENTROPY)
    curve = joined(runs, CURVE)
    said = sentences(found, curve, deciles, min(r.json["prepare"]["test"] for r in runs))
    text = f"{runs[0].dataset}: error against k with fitted curves, and error by entropy of the attention weights"
    return Part(
        runs[0].dataset, "\n".join(said), [(text, picture(found, curve, deciles))], _tables(found, curve, deciles)
    )


def section(runs: Sequence[Run]) -> Section:
    """The claims of theory, for every dataset where the stage ran."""
    return Section(
        "theory",
        "What theory says",
        "Theory of attention over nearest neighbours assumes bounded norms, takes distance and inner product for the "
        "same, recommends k = √n and states an error that falls as 1/k. Each is tested on the dataset's own "
        "embeddings and answers, and so is whether the weights' entropy tells wrong answers.",
        by_dataset([r for r in runs if FOUND in r.tables and ENTROPY in r.tables], _part),
        NOTE,
        "dvc repro theory",
    )

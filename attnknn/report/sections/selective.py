"""Abstention and conformal sets, in words, pictures and tables."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS, OURS, Verdict, combined_p, holm, verdict
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import digits_for, fixed, p_value

TABLES: dict[str, tuple[str, ...]] = {
    "risk_coverage": ("method", "coverage", "risk"),
    "selective": ("method", "metric", "value", "low", "high"),
    "selective_paired": ("method", "baseline", "metric", "difference", "low", "high", "errors", "p", "test"),
    "conformal": (
        *("method", "kind", "alpha", "coverage", "low", "high"),
        *("size", "empty", "single", "worst_class", "always"),
    ),
}
ALPHA = 0.01  # level of the tests, adjusted for the number of baselines
_KINDS = {"split": "split", "class_conditional": "class-conditional"}


def _base(method: str) -> str:
    """A method of `joined_forms` without its calibrations."""
    return method.partition("/")[0].partition("_")[0]


def _name(method: str) -> str:
    """The name that people read of a method of `joined_forms`."""
    return "/".join(plots.method_name(form) for form in method.split("/"))


def _form_of(base: str, methods: Iterable[str]) -> str:
    """The one method among some that is this one, bare or calibrated."""
    return next(m for m in methods if _base(m) == base)


def joined_forms(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """One table of all runs, where a method is named by its calibrations, `/` between those that differ by seed."""
    rows = joined(runs, table)
    for column in {"method", "baseline"} & set(rows):
        of = rows.groupby(rows[column].map(_base))[column]
        rows[column] = of.transform(lambda forms: "/".join(sorted(set(forms))))
    return rows


def _named(methods: Sequence[str]) -> str:
    """Methods in a row of words."""
    names = [_name(m) for m in methods]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means over seeds in the order of the rows, and `sd` of the first column of values."""
    values = [c for c in rows.columns if c not in ("dataset", "seed", *by)]
    found = rows.groupby(by, sort=False)[values].mean()
    found["sd"] = rows.groupby(by, sort=False)[values[0]].std()
    return found.reset_index()


def tested(paired: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Attention against each baseline over seeds, by baseline: difference, low, high, p, adjusted (Holm), verdict."""
    found = []
    for baseline, rows in paired[paired["metric"] == metric].groupby("baseline", sort=False):
        ends = {"difference": rows["difference"].mean(), "low": rows["low"].min(), "high": rows["high"].max()}
        found.append({"baseline": baseline, **ends, "p": combined_p(rows["p"].tolist()), "rows": rows})
    for row, p in zip(found, holm([row["p"] for row in found]), strict=True):
        rows = row.pop("rows")
        row["adjusted"] = p
        row["verdict"] = verdict(rows["difference"].tolist(), p, int(rows["errors"].min()), metric, ALPHA)
    return pd.DataFrame(found).set_index("baseline")


def _compared(tests: pd.DataFrame, lower: str, higher: str, that: str) -> str:
    """Whom attention differs from, in words: "lower than that of … (p …) and not shown to differ from that of …"."""
    said: list[str] = []
    words: list[tuple[Verdict, str]] = [("yes", f"{lower} than {that}"), ("no", f"{higher} than {that}")]
    for kind, word in words:
        rows = tests[tests["verdict"] == kind]
        if len(rows):
            largest = rows["adjusted"].max()
            p = f"p {p_value(largest)}" if len(rows) == 1 or largest < 0.001 else f"p ≤ {p_value(largest)}"
            said.append(f"{word} {_named(list(rows.index))} ({p})")
    rows = tests[tests["verdict"] == "undecided"]
    if len(rows):
        others = "any other" if len(rows) == len(tests) else f"{that} {_named(list(rows.index))}"
        said.append(f"not shown to differ from {others}")
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def _around(row: Any, seeds: int, digits: int) -> str:
    return (
        f"± {fixed(row['sd'], digits)} over {seeds} seeds"
        if seeds > 1
        else f"{fixed(row['low'], digits)} … {fixed(row['high'], digits)}"
    )


def said_of_order(scores: pd.DataFrame, tests: pd.DataFrame, seeds: int, digits: int) -> str:
    """Whose AURC is lowest, whether attention's differs by more than chance, and what it means for who abstains."""
    areas = scores[scores["metric"] == "aurc"].set_index("method")
    if areas["value"].max() == 0:
        return "No method gets a test row wrong, so no order of confidence can be told from another."
    best = str(areas["value"].idxmin())
    ours, distance = _form_of(OURS, areas.index), _form_of("distance", areas.index)
    text = f"Lowest AURC: {_name(best)}, {fixed(areas['value'][best], digits)}"
    text += f" ({_around(areas.loc[best], seeds, digits)}). "
    own = "It" if best == ours else f"That of {_name(ours)}, {fixed(areas['value'][ours], digits)},"
    text += f"{own} is {_compared(tests, 'lower', 'higher', 'that of')}."
    levels = [m.rpartition("_")[2] for m in scores["metric"] if m.startswith("coverage_at_")]
    level = min(levels, key=float)
    value = scores.set_index(["method", "metric"])["value"]

    def answered(method: str) -> str:
        if (method, f"risk_at_{level}") not in value.index:
            return "none"
        return f"{value[method, f'coverage_at_{level}']:.0%} ({value[method, f'risk_at_{level}']:.1%} of these wrong)"

    shares = ", ".join(f"{_name(m)} {answered(m)}" for m in (ours, distance))
    return f"{text} Share of test rows answered at a threshold that leaves {level}% errors on val: {shares}."


def said_of_sets(sets: pd.DataFrame, paired: pd.DataFrame) -> str:
    """Whether coverage held at the strictest level, and whose sets are smallest."""
    alpha, ours = sets["alpha"].min(), _form_of(OURS, sets["method"])
    at = sets[sets["alpha"] == alpha]
    split = at[at["kind"] == "split"].set_index("method")
    asked, low, high = f"{1 - alpha:.0%}", f"{split['coverage'].min():.1%}", f"{split['coverage'].max():.1%}"
    held = split[split["high"] >= 1 - alpha]
    missed = [m for m in split.index if m not in held.index]
    text = f"Conformal sets asked to hold the true class for {asked} of the rows hold it for "
    text += low if low == high else f"{low} to {high}"
    text += f", too few for {_named(missed)}." if missed else ": no method's interval falls short."
    sizes = held["size"].round(2)
    tests = tested(paired, f"size_at_{100 * (1 - alpha):g}")
    if len(sizes) and sizes.min() == sizes.max():
        text += f" They are of one size, {sizes.iloc[0]:.2f} classes on average."
    elif len(sizes):
        best = str(held["size"].idxmin())
        own = "they" if best == ours else f"those of {_name(ours)} ({split['size'][ours]:.2f})"
        text += f" Smallest{' among the others' if missed else ''}: {_name(best)}, {sizes[best]:.2f} classes "
        text += f"on average; {own} are {_compared(tests, 'smaller', 'larger', 'those of')}."
    if split["size"].min() < 1:
        text += " A mean below 1 means empty sets: a method that is right more often than asked may stay silent."
    by_class = at[(at["kind"] == "class_conditional") & (at["method"] == ours)].iloc[0]
    worst = f"{split['worst_class'][ours]:.1%}", f"{by_class['worst_class']:.1%}"
    if by_class["always"] > 0:
        text += f" {by_class['always']:g} of the classes have too few val rows to be calibrated on their own and are "
        text += "in every class-conditional set."
    covered = f"{worst[0]} as before" if worst[0] == worst[1] else f"{worst[1]} instead of {worst[0]}"
    text += f" Calibrated class by class, attention's worst class is covered {covered} of the "
    return text + f"time, with {by_class['size']:.2f} instead of {split['size'][ours]:.2f} classes."


def risk_picture(curves: pd.DataFrame) -> bytes:
    """Risk against coverage, one line a method.

    Args:
        curves: method, coverage, risk.
    """
    figure = plots.new_figure(3.4, 3.3)
    axes = figure.subplots()
    for method in dict.fromkeys(curves["method"]):
        line = curves[curves["method"] == method]
        ours = _base(method) == OURS
        axes.plot(
            100 * line["coverage"],
            100 * line["risk"],
            color=plots.method_colour(_base(method)),
            lw=2.2 if ours else 1.3,
            zorder=4 if ours else 3,
            label=plots.method_name(_base(method)),
        )
    axes.set(xlim=(0, 100), xlabel="rows answered, surest first (%)", ylabel="errors among them (%)")
    axes.set_ylim(0, max(1.0, 1.05 * axes.get_ylim()[1]))
    axes.set_title("Risk against coverage", loc="left", size=10, weight="bold", color=plots.INK)
    figure.legend(loc="outside lower left", ncols=2, fontsize=7, frameon=False, handlelength=1.6, columnspacing=1)
    plots.style_axes(axes)
    return plots.as_png(figure)


def sets_picture(sets: pd.DataFrame, alpha: float) -> bytes:
    """Measured coverage and mean size of conformal sets at one level, split filled and class-conditional hollow.

    Args:
        sets: method, kind, alpha, coverage, low, high, size.
    """
    at = sets[sets["alpha"] == alpha]
    methods = list(dict.fromkeys(at["method"]))
    figure = plots.new_figure(3.4, 1.1 + 0.34 * len(methods))
    left, right = figure.subplots(1, 2, sharey=True)
    left.axvline(100 * (1 - alpha), color=plots.INK, lw=0.8, ls=(0, (3, 2)), zorder=1)
    for place, method in enumerate(methods):
        colour = plots.method_colour(_base(method))
        for kind, shift in (("split", -0.19), ("class_conditional", 0.19)):
            row = at[(at["method"] == method) & (at["kind"] == kind)].iloc[0]
            y, fill = place + shift, colour if kind == "split" else "white"
            left.plot([100 * row["low"], 100 * row["high"]], [y, y], color=colour, lw=1.5, zorder=2)
            left.plot(100 * row["coverage"], y, "o", ms=4.5, color=colour, mfc=fill, zorder=3)
            right.barh(y, row["size"], 0.3, color=fill, edgecolor=colour, lw=0.9)
            right.annotate(
                f"{row['size']:.2f}", (row["size"], y), (2, 0), textcoords="offset points", size=6.5, va="center"
            )
    left.set_yticks(range(len(methods)), [plots.method_name(_base(m)) for m in methods])
    left.set_ylim(len(methods) - 0.5, -0.5)
    left.locator_params(axis="x", nbins=3)
    left.grid(axis="x", color="#eeeeee", lw=0.8)
    left.set_xlabel("holds the true\nclass (%)")
    right.set_xlim(0, 1.4 * at["size"].max())
    right.set_xlabel("classes in it\n(mean)")
    for axes in (left, right):
        plots.style_axes(axes)
        axes.tick_params(axis="y", length=0, labelsize=7.5)
        axes.set_axisbelow(True)
    left.spines["left"].set_visible(False)
    right.spines["bottom"].set_visible(False)
    right.set_xticks([])
    figure.suptitle(
        f"Sets asked for {1 - alpha:.0%}: ● split, ○ class by class", x=0.01, ha="left", size=9.5, weight="bold"
    )
    return plots.as_png(figure)


def _tables(scores: pd.DataFrame, paired: pd.DataFrame, sets: pd.DataFrame, seeds: int, digits: int) -> list[Table]:
    heads = {"aurc": "AURC", "eaurc": "E-AURC"}
    by_method = {m: rows.set_index("metric") for m, rows in scores.groupby("method", sort=False)}
    answered = [m for m in dict.fromkeys(scores["metric"]) if m.startswith("coverage_at_")]
    metrics = [*heads, *(m for at in answered for m in (at, at.replace("coverage", "risk")))]
    head = [heads.get(m, f"{m.partition('_')[0]} at {m.rpartition('_')[2]}%") for m in metrics]
    rows = [
        [_name(str(method))]
        + [
            f"{fixed(of['value'][m], digits)} ({_around(of.loc[m], seeds, digits)})" if m in of.index else "no answer"
            for m in metrics
        ]
        for method, of in by_method.items()
    ]
    caption = "Order of confidence, and share answered and its errors at thresholds that val rows chose"
    found = [Table("scores", caption, ["method", *head], rows)]
    tests = []
    for metric in dict.fromkeys(paired["metric"]):
        name = heads.get(metric, f"set size at {metric.rpartition('_')[2]}%")
        for baseline, row in tested(paired, metric).iterrows():
            ends = f"{fixed(row['low'], digits, True)} … {fixed(row['high'], digits, True)}"
            moved = [fixed(row["difference"], digits, True), ends, p_value(row["p"]), p_value(row["adjusted"])]
            tests.append([name, _name(str(baseline)), *moved])
    head = ["metric", "than", "attention − it", "interval", "p", "p, Holm"]
    found.append(Table("tests", "Attention against each method, paired bootstrap", head, tests))
    head = ["method", "sets", "asked", "coverage", "interval", "classes"]
    head += ["empty", "single", "worst class", "in every set"]
    rows = [
        [
            *(_name(row["method"]), _KINDS[row["kind"]], f"{1 - row['alpha']:.0%}"),
            *(fixed(row["coverage"], 3), f"{fixed(row['low'], 3)} … {fixed(row['high'], 3)}", fixed(row["size"], 2)),
            *(fixed(row[c], 3) for c in ("empty", "single", "worst_class")),
            f"{row['always']:g}",
        ]
        for _, row in sets.iterrows()
    ]
    return [*found, Table("sets", "Conformal sets, calibrated on val and measured on test", head, rows)]


def _part(runs: Sequence[Run]) -> Part:
    scores = _means(joined_forms(runs, "selective"), ["method", "metric"])
    sets = _means(joined_forms(runs, "conformal"), ["method", "kind", "alpha"])
    curves = _means(joined_forms(runs, "risk_coverage"), ["method", "coverage"])
    paired = joined_forms(runs, "selective_paired")
    digits = digits_for(min(r.json["prepare"]["test"] for r in runs))
    order = said_of_order(scores, tested(paired, "aurc"), len(runs), digits)
    pictures = [("coverage and size of conformal sets, by method", sets_picture(sets, sets["alpha"].min()))]
    if curves["risk"].max() > 0:
        risk = "errors among the answered rows against the share answered, by method"
        pictures.insert(0, (risk, risk_picture(curves)))
    tables = _tables(scores, paired, sets, len(runs), digits)
    return Part(runs[0].dataset, f"{order} {said_of_sets(sets, paired)}", pictures, tables)


def section(runs: Sequence[Run]) -> Section:
    """The section of those datasets where the stage ran."""
    done = [r for r in runs if set(TABLES) <= set(r.tables)]
    return Section(
        name="selective",
        title="Knowing when not to answer",
        question="Do the surest answers carry the fewest errors, and do sets of classes hold the true one as often as "
        "asked? Rows below a top probability are left unanswered (risk–coverage; AURC is the mean risk over all "
        "coverages, lower is better), and conformal sets are calibrated on val rows, split and class by class. "
        "Each method stands with the calibration, or none, that has its lowest NLL on val; pictures leave its "
        "name out.",
        parts=[_part([r for r in done if r.dataset == d]) for d in dict.fromkeys(r.dataset for r in done)],
        note="AURC falls with fewer errors and with errors that are less sure; E-AURC takes out the first. A test is "
        f"called at p < {ALPHA:g} after Holm's adjustment for the number of methods, and needs {FEWEST_ERRORS} errors. "
        "Val rows also tuned the methods, and cross-fitted ones come from other encoders, so conformal coverage is not "
        "guaranteed to the letter: the measured one, with Wilson's interval, is what counts.",
        command="dvc repro selective",
    )

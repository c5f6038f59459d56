"""All methods on the test rows: scores, paired differences and claims."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from attnknn.report import plots
from attnknn.report.claims import CLAIMED, FEWEST_ERRORS, OURS, Claim, combined_verdict, setting_verdicts
from attnknn.report.results import CLEAN, Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, comparison_table, difference_cell, digits_of, fixed, p_value, paired_table


def sizes(runs: Sequence[Run]) -> Table:
    """Numbers of rows, and the share of test rows whose true class is among the nearest neighbours."""
    digits = digits_of(runs)
    rows = []
    for run in runs:
        prepared, headroom = run.json["prepare"], run.json["headroom"]
        shares = [fixed(headroom[f"oracle_at_{k}"], digits) for k in ("1", "5", "k")]
        counts = [f"{prepared[key]:,}" for key in ("test", "bank", "classes")]
        rows.append([str(run.seed), *counts, *shares, str(headroom["k"])])
    head = ["seed", "test rows", "bank rows", "classes", "oracle, 1 nearest", "5 nearest", "k nearest", "k"]
    note = "Oracle: share of the test rows whose true class is among the nearest neighbours; an upper bound for kNN."
    return Table("sizes", "Rows and upper bounds", head, rows, note, folded=False)


def differences(runs: Sequence[Run], methods: Sequence[str]) -> list[tuple[str, bytes]]:
    """Attention minus each base method, an estimate per seed."""
    paired = joined(runs, "paired")
    paired = plots.by_method(paired[(paired["method"] == OURS) & paired["baseline"].isin(methods)], "baseline")
    label = "attention − baseline"
    return [
        (
            f"differences in {plots.METRICS[m]}",
            plots.forest_plot(paired[paired["metric"] == m], plots.METRICS[m], plots.better_side(m, label)),
        )
        for m in CLAIMED
    ]


def _part(claims: Sequence[Claim], runs: Sequence[Run]) -> Part:
    dataset, digits = runs[0].dataset, digits_of(runs)
    scores, base = joined(runs, "intervals"), list(runs[0].json["evaluate"])
    around = "mean ± standard deviation over seeds" if len(runs) > 1 else "intervals in brackets"
    note = f"Best value in bold, which is not a claim; {around}; ↑ higher is better, ↓ lower is better."
    methods = comparison_table(scores[scores["method"].isin(base)], digits, note=note)
    verdicts = setting_verdicts([c for c in claims if c.dataset == dataset and c.condition == CLEAN])
    tables = [methods, sizes(runs), paired_table(joined(runs, "paired"), digits)]
    return Part(dataset, differences(runs, base), tables, combined_verdict(list(verdicts.values())))


def section(runs: Sequence[Run], claims: Sequence[Claim]) -> Section:
    """The main comparison."""
    return Section(
        "evaluate",
        "All methods",
        "Every method uses the same embeddings and neighbours, is tuned or fitted on validation and fit rows, and is "
        "evaluated once on the test rows.",
        by_dataset(runs, partial(_part, claims)),
        "Prototypes alone are the same head without its neighbours; the linear head uses the same embeddings; the "
        "plain network is the same backbone trained to classify. Intervals: Wilson's for accuracy, else bootstrap.",
        "dvc repro evaluate",
    )


def claim_rows(claims: Sequence[Claim], digits: Mapping[str, int]) -> Table:
    """All claims with their numbers and verdicts."""
    rows: list[Row] = []
    runs = 1
    for i, c in enumerate(claims):
        if not i or c.setting != claims[i - 1].setting:
            runs = c.runs
            rows.append([f"{c.dataset}, {c.condition}" + (f", {runs} runs" if runs > 1 else "")])
        # Baselines that the condition of the bank does not affect were scored once per seed.
        fewer = [] if c.runs == runs else [f"{c.runs} run" + ("s" if c.runs > 1 else "")]
        baseline = Cell(plots.method_name(c.baseline), ", ".join((*c.roles, *fewer)), method=c.baseline)
        difference = difference_cell(vars(c), digits[c.dataset] + 1)
        rows.append([plots.METRICS[c.metric], baseline, difference, p_value(c.p), c.verdict])
    return Table("claims", "Claims: is attention better?", ["in", "than", "difference", "p", "verdict"], rows)


def summary(runs: Sequence[Run], claims: Sequence[Claim]) -> Table:
    """The first table of the page: attention against its opponents in NLL on the clean bank, by dataset."""
    rows: list[Row] = []
    verdicts = setting_verdicts(claims)
    for name in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == name]
        means = joined(mine, "intervals").groupby(["method", "metric"])["value"].mean()
        digits = digits_of(mine)

        def scores(method: str, means: pd.Series = means, digits: int = digits) -> str:
            return " / ".join(fixed(means[method, metric], digits) for metric in ("accuracy", "nll"))

        nll = [c for c in claims if c.setting == (name, CLEAN) and c.metric == "nll"]
        opponents = {role: c for c in nll for role in c.roles}
        errors = min(c.errors for c in nll)
        best, without = (opponents[role] for role in ("best tuned", "without neighbours"))
        cells = [Cell(scores(c.baseline), plots.method_name(c.baseline)) for c in (best, without)]
        word = f"no verdict: {errors} error{'s' * (errors != 1)}" if errors < FEWEST_ERRORS else verdicts[name, CLEAN]
        rows.append([name, word, scores(OURS), *cells, difference_cell(vars(without), digits + 1), without.verdict])
    head = ["dataset", "better than kNN", "attention", "best kNN", "best without neighbours", "NLL difference to it"]
    note = "Accuracy / NLL on test rows; opponents are chosen on validation rows; intervals are 95 % bootstrap."
    return Table("summary", "Clean bank", [*head, "better than it"], rows, note, folded=False)

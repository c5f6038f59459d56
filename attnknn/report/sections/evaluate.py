"""All methods on the test rows: scores, paired differences and claims."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from attnknn.evaluation.opponents import OURS, ROLES
from attnknn.evaluation.paired_tests import TESTED
from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS, Claim, setting_verdicts
from attnknn.report.results import CLEAN, Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, comparison_table, difference_cell, digits_of, fixed, p_value


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


def differences(runs: Sequence[Run]) -> list[tuple[str, bytes]]:
    """Attention minus each base method, an estimate per seed."""
    rows = joined(runs, "intervals")
    rows = rows[(rows["role"] == "") & rows["difference"].notna()].drop(columns=["low", "high"])
    rows = plots.by_method(rows.rename(columns={"difference_low": "low", "difference_high": "high"}))
    label = "attention − baseline"
    return [
        (
            f"differences in {plots.METRICS[m]}",
            plots.forest_plot(rows[rows["metric"] == m], plots.METRICS[m], plots.better_side(m, label)),
        )
        for m in TESTED
    ]


def _part(claims: Sequence[Claim], runs: Sequence[Run]) -> Part:
    dataset, digits, scores = runs[0].dataset, digits_of(runs), joined(runs, "intervals")
    around = "mean ± standard deviation over seeds" if len(runs) > 1 else "intervals in brackets"
    note = f"Best value in bold, which is not a claim; {around}; ↑ higher is better, ↓ lower is better."
    methods = comparison_table(scores[~scores["role"].isin(list(ROLES))], digits, note=note)
    verdicts = setting_verdicts([c for c in claims if c.setting == (dataset, CLEAN)])
    return Part(dataset, differences(runs), [methods, sizes(runs)], verdicts[dataset, CLEAN])


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
    for i, c in enumerate(claims):
        if not i or c.setting != claims[i - 1].setting:
            rows.append([f"{c.dataset}, {c.condition}" + (f", {c.seeds} seeds" if c.seeds > 1 else "")])
        difference = difference_cell(vars(c), digits[c.dataset] + 1)
        rows.append([plots.METRICS[c.metric], opponent(c), difference, p_value(c.p), c.finding])
    head = ["in", "than", "difference", "p", "verdict"]
    return Table("claims", "Claims: is attention better, clean and on modified banks?", head, rows)


def opponent(claim: Claim) -> Cell:
    """The opponent's name and role."""
    names = " / ".join(map(plots.method_name, claim.method.split("/")))
    return Cell(names, f"best {claim.role}", method=claim.method.split("/")[0])


def summary(runs: Sequence[Run], claims: Sequence[Claim]) -> Table:
    """The first table of the page: attention and its opponents on the clean bank, by dataset."""
    rows: list[Row] = []
    for name in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == name]
        scores = joined(mine, "intervals").groupby(["role", "metric"])["value"].mean()
        digits = digits_of(mine)
        texts = {r: " / ".join(fixed(scores[r, m], digits) for m in ("accuracy", "nll")) for r in (OURS, *ROLES)}
        nll = {c.role: c for c in claims if c.setting == (name, CLEAN) and c.metric == "nll"}
        knn, without = (Cell(texts[role], opponent(nll[role]).value) for role in ROLES)
        tests = [Cell(c.finding, str(difference_cell(vars(c), digits + 1))) for c in nll.values()]
        rows.append([name, knn, texts[OURS], without, *tests, str(min(c.errors for c in nll.values()))])
    head = ["dataset", "best kNN", "attention", "best without neighbours"]
    head += ["NLL against best kNN", "against best without neighbours", "errors"]
    note = "Accuracy / NLL on test rows, each of the opponent that is best in it on validation rows, named for NLL. "
    note += "Differences are attention's, with 95 % intervals; errors are test rows that either method gets wrong."
    return Table("summary", "Clean bank", head, rows, note, folded=False)


def summary_picture(claims: Sequence[Claim]) -> bytes:
    """NLL of attention less that of its opponents on the clean bank, a dataset a line."""
    rows = [
        {**vars(c), "label": c.dataset, "colour": plots.method_colour(c.role), "hollow": c.errors < FEWEST_ERRORS}
        | {"group": f"less that of the {plots.method_name(c.role).lower().replace('knn', 'kNN')}"}
        for c in claims
        if c.primary and c.metric == "nll"
    ]
    label = "difference, left of 0: attention is better\n(hollow: too few errors for a verdict)"
    return plots.forest_plot(pd.DataFrame(rows), "NLL of attention", label)

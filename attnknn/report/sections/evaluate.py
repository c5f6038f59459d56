"""All methods on the test rows: the comparison that everything else is held against."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from attnknn.report import plots as pictures
from attnknn.report.answers import answers, overall, sentence
from attnknn.report.claims import CLAIMED, OURS, Claim
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.tables import by_dataset, comparison_table, digits_of, fixed, p_value, paired_table


def headroom(runs: Sequence[Run]) -> str:
    """How many test rows the neighbours could get right under the best of all weights, in words."""
    found = [r.json["headroom"] for r in runs]
    at = {k: fixed(float(np.mean([of[f"oracle_at_{k}"] for of in found])), digits_of(runs)) for k in ("1", "5", "k")}
    of_k = " or ".join(str(k) for k in sorted({of["k"] for of in found}))
    return (
        f"The nearest neighbour has the true class for {at['1']} of the test rows, one of the nearest 5 for {at['5']}, "
        f"one of all {of_k} for {at['k']}: no votes of these neighbours get more right."
    )


def beside(runs: Sequence[Run], method: str, name: str) -> str:
    """How far attention's NLL on the clean memory is from that of another method, in words."""
    table = joined(runs, "intervals")
    nll = table[table["metric"] == "nll"].groupby("method")["value"].mean()
    if method not in nll:
        return ""
    gap = float(nll[OURS] / nll[method]) - 1
    paired = joined(runs, "paired")
    row = (paired["method"] == OURS) & (paired["baseline"] == method) & (paired["metric"] == "nll")
    p = " and ".join(p_value(float(value)) for value in paired[row]["p"])
    return f"Attention's NLL is {abs(gap):.1%} {'above' if gap > 0 else 'below'} that of {name} (p {p}, not corrected)."


def sizes(runs: Sequence[Run]) -> str:
    """What the numbers rest on, in words."""
    of = runs[0].json["prepare"]
    seeds = f"seed {runs[0].seed}" if len(runs) == 1 else f"{len(runs)} seeds, mean ± standard deviation over them"
    tests = " or ".join(f"{n:,}" for n in sorted({r.json["prepare"]["test"] for r in runs}))
    return f"{tests} test rows, {of['bank']:,} in the bank, {of['classes']} classes, {seeds}."


def differences(runs: Sequence[Run], methods: Sequence[str]) -> list[tuple[str, bytes]]:
    """Attention less each base method."""
    paired = joined(runs, "paired")
    paired = paired[(paired["method"] == OURS) & paired["baseline"].isin(methods)]
    return [
        (f"differences in {pictures.METRICS[m]}", pictures.differences(paired[paired["metric"] == m], m))
        for m in CLAIMED
    ]


def _part(found: Sequence[Claim], runs: Sequence[Run]) -> Part:
    mine = [c for c in found if c.dataset == runs[0].dataset]
    own, base = joined(runs, "intervals"), list(runs[0].json["evaluate"])
    words = [
        sentence([c for c in mine if c.condition == "clean"]),
        headroom(runs),
        beside(runs, "linear_temperature", "the encoder's own linear head with temperature"),
        beside(runs, "cnn_temperature", "the same network trained as a plain classifier, with temperature"),
        sizes(runs),
    ]
    note = "Best value in bold; ↑ higher is better, ↓ lower is better. A best value is no claim: those are above."
    methods = comparison_table(own[own["method"].isin(base)], digits_of(runs), note=note)
    every = paired_table(joined(runs, "paired"), digits_of(runs))
    verdict = overall([v for (_, condition), v in answers(mine).items() if condition == "clean"])
    return Part(runs[0].dataset, " ".join(filter(None, words)), differences(runs, base), [methods, every], verdict)


def section(runs: Sequence[Run], found: Sequence[Claim]) -> Section:
    """The main comparison.

    Args:
        found: the claims about all of the runs.
    """
    return Section(
        "evaluate",
        "All methods",
        "Who is most accurate, and whose probabilities are best? Every method sees the same embeddings and "
        "neighbours, is tuned or fitted on validation and fit rows, and is read once on the test rows.",
        by_dataset(runs, partial(_part, found)),
        "Attention learns how much each neighbour counts. Prototypes alone are the same head without its neighbours; "
        "the linear head reads the very embeddings that are compared; the plain network is the same backbone trained "
        "to classify: another one, unless the encoder was trained so itself. Intervals: Wilson's for accuracy, the "
        "bootstrap's else, centred on the score itself because "
        "resampling rows raises calibration errors.",
        "dvc repro evaluate",
    )


def claim_rows(found: Sequence[Claim], digits: Mapping[str, int]) -> Table:
    """Every claim with its numbers and verdict."""
    rows: list[Sequence[str | Cell]] = []
    runs = 1
    for i, c in enumerate(found):
        if not i or c.setting != found[i - 1].setting:
            runs = c.runs
            rows.append([f"{c.dataset}, {c.condition}" + (f", {runs} runs" if runs > 1 else "")])
        n = digits[c.dataset] + 1
        around = f"{fixed(c.low, n, True)} … {fixed(c.high, n, True)}"
        # What a memory's conditions do not touch was scored once a seed.
        fewer = [] if c.runs == runs else [f"{c.runs} run" + ("s" if c.runs > 1 else "")]
        than = Cell(pictures.method_name(c.baseline), ", ".join((*c.roles, *fewer)), method=c.baseline)
        rows.append(
            [pictures.METRICS[c.metric], than, Cell(fixed(c.difference, n, True), around), p_value(c.p), c.verdict]
        )
    return Table("claims", "Claims: is attention better?", ["in", "than", "difference", "p", "verdict"], rows)

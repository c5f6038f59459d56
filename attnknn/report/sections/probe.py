"""Representations of images: kNN compared with linear and transformer probes."""

from collections.abc import Sequence

import pandas as pd

from attnknn.evaluation.opponents import OURS
from attnknn.report import plots
from attnknn.report.claims import over_runs
from attnknn.report.differences import Level, judged
from attnknn.report.results import Run, joined, mean_over_runs
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, digits_of, finding_cells, fixed, interval, p_value, score_cell

_WHERE = ("mode", "representation", "readout")
TABLES: dict[str, tuple[str, ...]] = {
    "probe": (*_WHERE, "metric", "value", "low", "high"),
    "probe_paired": (
        *(*_WHERE, "baseline", "baseline_readout", "metric"),
        *("difference", "low", "high", "errors", "p", "test"),
    ),
    "probe_agreement": ("mode", "readout", "against", "representations", "rho", "low", "high", "p"),
}
NAMES = {
    "pixels": "pixels",
    "full": "field, whole images",
    "sparse": "field, sparse points",
    "full_nce": "field, whole images + NCE",
    "sparse_nce": "field, sparse points + NCE",
    "encoder": "encoder trained with labels",
}
READOUTS = {
    "uniform": ("kNN, uniform", "#7f7f7f"),
    "distance": ("kNN by distance", "#0072b2"),
    "attention": ("kNN, attention", "#d55e00"),
    "linear_probe": ("linear probe", "#9c755f"),
    "transformer": ("small transformer", "#117733"),
}
MODES = {"full": "the whole image known", "sparse": "some points known"}
NCE = (("full_nce", "full"), ("sparse_nce", "sparse"))
KNN, PROBE = "distance", "linear_probe"
_ALPHA = 0.05  # of rank correlations; with five representations p is at least 1/60


def _tested(paired: pd.DataFrame, level: Level) -> pd.DataFrame:
    """Differences in accuracy by fields, contrastive training and attention, judged together within a dataset."""
    rows = paired[paired["metric"] == "accuracy"]
    pairs = list(zip(rows["representation"], rows["baseline"], strict=True))
    named = pd.Series([pair in NCE or pair[1] == "pixels" for pair in pairs], rows.index)
    of_fields = named & rows["readout"].isin((KNN, PROBE))
    attention = (rows["readout"] == OURS) & (rows["baseline_readout"] == "distance")
    keys = (*_WHERE, "baseline", "baseline_readout", "metric")
    return judged(over_runs(rows[of_fields | attention], keys), level)


def picture(scores: pd.DataFrame, mode: str) -> bytes:
    """Accuracy of every readout by representation, with intervals."""
    names, colours = ({readout: values[i] for readout, values in READOUTS.items()} for i in (0, 1))
    order = {name: i for i, name in enumerate(NAMES)}
    rows = scores.sort_values("representation", key=lambda column: column.map(order), kind="stable")
    rows = rows.assign(
        label=rows["readout"].map(names),
        colour=rows["readout"].map(colours),
        group=rows["representation"].map(NAMES),
    )
    return plots.forest_plot(rows, f"Accuracy, {MODES[mode]}", "accuracy", zero=None, key="value")


def _scores_table(scores: pd.DataFrame, metric: str, digits: int, seeds: int, folded: bool) -> Table:
    """A row per representation and a column per readout, grouped by mode."""
    means = mean_over_runs(scores[scores["metric"] == metric], _WHERE)
    cells = {key: score_cell(row, digits, seeds) for key, row in means.to_dict("index").items()}
    rows: list[Row] = []
    for mode, words in MODES.items():
        rows.append([words.capitalize()])
        for name, shown in NAMES.items():
            line: list[str | Cell] = [cells.get((mode, name, readout), "") for readout in READOUTS]
            if any(line):
                rows.append([shown, *line])
    head = ["representation", *(label for label, _ in READOUTS.values())]
    return Table(f"probe_{metric}", f"{plots.METRICS[metric]} on test rows", head, rows, folded=folded)


def _pairs_table(tests: pd.DataFrame, digits: int) -> Table:
    rows: list[Row] = []
    for mode, words in MODES.items():
        rows.append([words.capitalize()])
        for row in tests[tests["mode"] == mode].to_dict("records"):
            one, other = (
                f"{NAMES[row[representation]]}: {READOUTS[row[readout]][0]}"
                for representation, readout in (("representation", "readout"), ("baseline", "baseline_readout"))
            )
            rows.append([one, other, *finding_cells(row, digits)])
    head = ["representation", "less", "difference in accuracy", "p, Holm", "finding"]
    caption = "Differences by fields, contrastive training and attention"
    return Table("probe_pairs", caption, head, rows, folded=False)


def _agreement_table(agreed: pd.DataFrame) -> Table:
    rows: list[Row] = []
    for row in agreed.to_dict("records"):
        names = [READOUTS[row[key]][0] for key in ("readout", "against")]
        rho = Cell(fixed(row["rho"], 2), interval(row, 2))
        sign = 1 if row["low"] > 0 else -1 if row["high"] < 0 else 0
        verdict = {1: "agree", -1: "contradict"}.get(sign if row["p"] < _ALPHA else 0, "not shown")
        where = [MODES[row["mode"]], str(row["seed"]), str(row["representations"])]
        rows.append([*where, *names, rho, p_value(row["p"]), verdict])
    head = ["known", "seed", "representations", "readout", "and", "ρ", "exact p", "order"]
    note = "ρ over the representations trained without labels; intervals from resampled test rows."
    return Table("agreement", "Rank correlation of readouts over representations", head, rows, note, folded=False)


def _part(runs: Sequence[Run], level: Level) -> Part:
    digits, scores = digits_of(runs), joined(runs, "probe")
    tests = _tested(joined(runs, "probe_paired"), level)
    means = mean_over_runs(scores[scores["metric"] == "accuracy"], _WHERE).reset_index()
    drawn = [(f"accuracy, {words}", picture(means[means["mode"] == mode], mode)) for mode, words in MODES.items()]
    tables = [
        _scores_table(scores, "accuracy", digits, len(runs), folded=False),
        _agreement_table(joined(runs, "probe_agreement")),
        _scores_table(scores, "nll", digits, len(runs), folded=True),
        _pairs_table(tests, digits),
    ]
    return Part(runs[0].dataset, drawn, tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "probe",
        "Representations of images",
        "How well do the latents of neural fields, trained without labels, predict the class, with the whole image or "
        "some of its points known, by kNN, by a linear probe and by a small transformer?",
        by_dataset(runs, lambda group: _part(group, level), *TABLES),
        "kNN and the linear probe read the mean latent or the pixels, the transformer all latents or patches; unknown "
        "pixels are filled in as val rows choose. Intervals do not include the variation between trainings; orders "
        f"agree or contradict where the interval excludes 0 and the exact p is below {_ALPHA:g}.",
        "dvc exp run -S +train_field.share=0.4",
    )

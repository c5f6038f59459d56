"""Encoders trained on wrong labels: label cleaning by neighbours, and plain networks."""

from collections.abc import Sequence
from functools import partial

from attnknn.report import plots
from attnknn.report.claims import FEWEST_ERRORS
from attnknn.report.gains import MARGIN, Level, Pair, gained
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Row, Section, Table
from attnknn.report.sections import trained
from attnknn.report.tables import by_dataset, digits_of, fixed

TABLES = {
    "noise_trained": ("rate", *trained.SCORES),
    "noise_trained_paired": ("rate", *trained.PAIRED),
    "cleaning": ("rate", "condition", "round", "quantity", "value"),
}
_LINES: dict[trained.Line, str] = {
    ("cross_entropy", "cnn", True): "Plain network, noisy labels",
    ("plain", "distance", True): "Distance-weighted kNN, noisy labels",
    ("plain", "attention", True): "Attention, noisy labels",
    ("cross_entropy_cleaned", "cnn", False): "Plain network, cleaned labels",
    ("cleaned", "distance", False): "Distance-weighted kNN, cleaned labels",
    ("cleaned", "attention", False): "Attention, cleaned labels",
    ("cleaned", "linear", False): "Linear head, cleaned labels",
}
LABELS = {
    "plain": "noisy labels",
    "cross_entropy": "noisy labels",
    "cleaned": "cleaned labels",
    "cross_entropy_cleaned": "cleaned labels",
}
_RIVALS = ("distance", "linear", "prototypes")  # of attention on the same cleaned labels
_XLABEL = "share of wrong labels"


def cleaning_picture(runs: Sequence[Run]) -> bytes:
    """Share of wrong labels in the bank before cleaning and after each round, over the rate."""
    rows = joined(runs, "cleaning")
    before = (rows["quantity"] == "wrong_before") & (rows["round"] == 1)
    rows = rows.assign(step=rows["round"].where(~before, 0))[before | (rows["quantity"] == "wrong_after")]
    means = rows.groupby(["step", "rate"])["value"].mean().unstack("step")
    figure = plots.new_figure(3.4, 2.5)
    axes = figure.subplots()
    colours = ["#7f7f7f", "#56b4e9", "#0072b2", "#009e73", "#222222"]
    ends = []
    for i, step in enumerate(means):
        colour = colours[min(i, len(colours) - 1)]
        axes.plot(range(len(means)), means[step], "o-", color=colour, ms=4.5, lw=1.5)
        ends.append((float(means[step].iloc[-1]), "noisy" if step == 0 else f"round {step:g}", colour))
    axes.set_xticks(range(len(means)), [f"{rate:g}" for rate in means.index])
    axes.set_ylim(0, None)
    axes.set_xlabel(_XLABEL)
    plots.title(axes, "Wrong labels in the bank, cleaned")
    plots.style_axes(axes)
    plots.name_ends(axes, ends)
    return plots.as_png(figure)


def cleaning_table(runs: Sequence[Run]) -> Table:
    """Shares of wrong, corrected and corrupted labels by round of cleaning, means over runs."""
    means = joined(runs, "cleaning").groupby(["condition", "round", "quantity"], sort=False)["value"].mean()
    names = {
        "wrong_before": "wrong before",
        "wrong_after": "wrong after",
        "mended": "wrong labels corrected",
        "spoiled": "right labels corrupted",
    }
    rows = [
        [str(condition), f"{step:g}", *(fixed(float(row[q]), 3) for q in names)]
        for (condition, step), row in means.unstack("quantity").iterrows()  # type: ignore[misc]
    ]
    note = "Shares of the bank rows. Cleaning does not use the true labels."
    return Table("cleaning", "Label cleaning", ["condition", "round", *names.values()], rows, note)


def _pair(
    runs: Sequence[Run], level: Level, condition: str, who: trained.Who, other: trained.Who, metric: str
) -> Pair | None:
    """Differences in accuracy uncorrected, in NLL forward-corrected."""
    suffix = "" if metric == "accuracy" else "_forward"
    who, other = ((variant, method + suffix) for variant, method in (who, other))
    return trained.paired(runs, level, "noise_trained_paired", condition, who, other, metric)


def pairs_table(runs: Sequence[Run], level: Level) -> Table:
    """All paired comparisons: accuracy uncorrected, NLL forward-corrected on both sides."""
    rows, digits = joined(runs, "noise_trained_paired"), digits_of(runs)
    keys = ["condition", "variant", "method", "baseline_variant", "baseline"]
    lines: list[Row] = []
    pairs = rows.loc[~rows["method"].str.endswith("_forward"), keys].drop_duplicates()
    for condition, group in pairs.groupby("condition", sort=False):
        lines.append([str(condition)])
        for variant, method, baseline_variant, baseline in group[keys[1:]].to_numpy():
            who, other = (variant, method), (baseline_variant, baseline)
            names = [f"{plots.method_name(m)}, {LABELS[v]}" for v, m in (who, other)]
            tests = [_pair(runs, level, str(condition), who, other, metric) for metric in ("accuracy", "nll")]
            lines.append([*names, *(cell for pair in tests for cell in trained.pair_cells(pair, digits))])
    head = ["method", "against", "accuracy", "p", "finding", "NLL, forward-corrected", "p", "finding"]
    return Table("paired", "Paired comparisons, p not adjusted", head, lines)


def verdicts_table(runs: Sequence[Run], level: Level) -> Table:
    """Whether attention adds to label cleaning: better than each of `_RIVALS` on the same cleaned labels."""
    rows = []
    for condition in dict.fromkeys(joined(runs, "noise_trained")["condition"]):
        verdicts = []
        for metric in ("accuracy", "nll"):
            attention = ("cleaned", "attention")
            tests = [_pair(runs, level, condition, attention, ("cleaned", m), metric) for m in _RIVALS]
            finding = gained([pair for pair in tests if pair is not None])
            verdicts.append({"supported": "yes", "contradicted": "no"}.get(finding, finding))
        rows.append([str(condition), *verdicts])
    head = ["condition", "in accuracy", "in NLL, forward-corrected"]
    return Table("verdicts", "Does attention add to label cleaning?", head, rows, folded=False)


def _part(runs: Sequence[Run], level: Level) -> Part:
    rows = joined(runs, "noise_trained")
    accuracy, nll = rows[rows["metric"] == "accuracy"], rows[rows["metric"] == "nll"]
    rates = sorted(rows["rate"].unique())
    corrected = {(variant, f"{method}_forward", dashed): name for (variant, method, dashed), name in _LINES.items()}
    drawn = [
        (
            "accuracy over the share of wrong labels",
            trained.against(accuracy, "rate", rates, _LINES, "Accuracy", _XLABEL),
        ),
        (
            "forward-corrected NLL over the share of wrong labels",
            trained.against(nll, "rate", rates, corrected, "NLL, forward-corrected", _XLABEL),
        ),
        ("share of wrong labels before and after each round of cleaning", cleaning_picture(runs)),
    ]
    scores = trained.scores_table(runs, "noise_trained", LABELS, ("accuracy", "nll", "ece"), ("", "_forward"))
    tables = [verdicts_table(runs, level), cleaning_table(runs), scores, pairs_table(runs, level)]
    return Part(runs[0].dataset, drawn, tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    return Section(
        "noise_trained",
        "Trained on wrong labels",
        "Labels of bank, fit and val are wrong in a share of the rows before anything is trained: encoders, heads, "
        "baselines, calibration and every choice use these. Neighbours then clean the bank: each row takes the "
        "majority label of its nearest other rows, an encoder is trained on the result, and the noisy labels are "
        "cleaned again in its space. Plain networks are trained by cross-entropy alone, on the noisy and on the "
        "cleaned labels.",
        by_dataset(runs, partial(_part, level=level), "noise_trained"),
        "Test labels are clean. A model fitted on wrong labels predicts the noisy labels, and is underconfident of the "
        "true one. Forward-corrected, its temperature is that under which its predictions, multiplied by the label "
        "transitions that cleaning estimated, explain the noisy labels of val rows; accuracy does not change. Encoders "
        "are trained for the share `noise.train_share` of the epochs of `train_embedder`, because later ones memorise "
        "wrong labels; a plain network is trained for that share and for all of them, and the better by validation "
        "accuracy is kept. Validation labels are wrong as often as others. Attention adds to cleaning where it is "
        "better than distance weighting, the linear head and prototypes; not where it is worse than one of them or any "
        f"gain over all is below {MARGIN['accuracy']:g} in accuracy, {MARGIN['nll']:g} in NLL. p values are not "
        f"adjusted; better and worse need p below {level.alpha:g} and {FEWEST_ERRORS} errors.",
        "dvc exp run -S 'noise.train_seeds=[42]'",
    )

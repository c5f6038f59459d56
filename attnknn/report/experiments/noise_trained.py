"""Wrong labels that the encoder was trained on too: neighbours that clean them, beside a plain network."""

from collections.abc import Sequence

from attnknn import plots as pictures
from attnknn.report.experiments import trained
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import by_dataset, fixed

TABLES = {
    "noise_trained": ("rate", *trained.SCORES),
    "noise_trained_paired": ("rate", *trained.PAIRED),
    "cleaning": ("rate", "condition", "round", "quantity", "value"),
}
_LINES: dict[trained.Line, str] = {
    ("cross_entropy", "cnn", "-"): "Plain network, by cross-entropy",
    ("plain", "distance", "--"): "Distance-weighted kNN, labels as given",
    ("plain", "attention", "--"): "Attention, labels as given",
    ("cleaned", "distance", "-"): "Distance-weighted kNN, cleaned labels",
    ("cleaned", "attention", "-"): "Attention, cleaned labels",
    ("cleaned", "linear", "-"): "Linear head, cleaned labels",
}
_NETWORK, _OURS = ("cross_entropy", "cnn"), ("cleaned", "attention")


def cleaning_picture(runs: Sequence[Run]) -> bytes:
    """Share of wrong labels in the bank before cleaning and after each round, against the rate."""
    rows = joined(runs, "cleaning")
    rows = rows[rows["quantity"].isin(("wrong_before", "wrong_after"))]
    before = (rows["quantity"] == "wrong_before") & (rows["round"] == 1)
    rows = rows[before | (rows["quantity"] == "wrong_after")]
    step = rows["round"].where(rows["quantity"] == "wrong_after", 0)
    mean = rows.assign(step=step).groupby(["step", "rate"])["value"].mean().unstack("step")
    figure = pictures.new_figure(3.4, 2.5)
    axes = figure.subplots()
    colours = ["#7f7f7f", "#56b4e9", "#0072b2", "#009e73", "#222222"]
    ends = []
    for i, number in enumerate(mean):
        colour = colours[min(i, len(colours) - 1)]
        axes.plot(range(len(mean)), mean[number], "o-", color=colour, ms=4.5, lw=1.5)
        name = "as given" if number == 0 else f"round {number:g}"
        ends.append((float(mean[number].iloc[-1]), name, colour))
    axes.set_xticks(range(len(mean)), [f"{rate:g}" for rate in mean.index])
    axes.set_ylim(0, None)
    axes.set_xlabel("share of labels made wrong")
    axes.set_title("Wrong labels in the bank, cleaned", loc="left", size=10, weight="bold", color=pictures.INK)
    pictures.tidy(axes)
    pictures.name_ends(axes, ends)
    return pictures.as_png(figure)


def cleaning_table(runs: Sequence[Run]) -> Table:
    """How each round of cleaning went, means over runs."""
    mean = joined(runs, "cleaning").groupby(["condition", "round", "quantity"], sort=False)["value"].mean()
    wide = mean.unstack("quantity")
    names = {
        "wrong_before": "wrong before",
        "wrong_after": "wrong after",
        "mended": "of the wrong, mended",
        "spoiled": "of the right, spoiled",
    }
    rows = [
        [str(condition), f"{number:g}", *(fixed(float(found[q]), 3) for q in names)]
        for (condition, number), found in wide.iterrows()  # type: ignore[misc]
    ]
    note = "Shares of the bank rows. The true labels are known here alone; cleaning never sees them."
    return Table("cleaning", "How cleaning went", ["condition", "round", *names.values()], rows, note)


def sentence(runs: Sequence[Run]) -> str:
    """At each rate: attention with cleaned labels against the plain network, and what cleaning did."""
    words = []
    cleaned = joined(runs, "cleaning")
    for condition in dict.fromkeys(joined(runs, "noise_trained")["condition"]):
        of = cleaned[(cleaned["condition"] == condition) & (cleaned["round"] == cleaned["round"].max())]
        mean = of.groupby("quantity")["value"].mean()
        ours, network = (
            trained.value_of(runs, "noise_trained", condition, who, "accuracy") for who in (_OURS, _NETWORK)
        )
        move, said = trained.difference(runs, "noise_trained_paired", condition, _OURS, _NETWORK, "accuracy")
        words.append(
            f"{condition}: attention with cleaned labels answers {ours} right, the plain network {network}, a "
            f"difference of {move}: {said}; cleaning mended {100 * mean['mended']:.0f} % of the wrong labels and "
            f"spoiled {100 * mean['spoiled']:.0f} % of the right ones"
        )
    return "At " + ". At ".join(words) + "."


def _part(runs: Sequence[Run]) -> Part:
    rows = joined(runs, "noise_trained")
    labels = {"xlabel": "share of labels made wrong"}
    freed: dict[trained.Line, str] = {
        (variant, f"{method}_forward", style): name for (variant, method, style), name in _LINES.items()
    }
    shown = [
        (
            "accuracy against the share of wrong labels",
            trained.against(rows[rows["metric"] == "accuracy"], "rate", _LINES, {"title": "Accuracy", **labels}),
        ),
        (
            "NLL against the share of wrong labels, at forward-corrected temperatures",
            trained.against(
                rows[rows["metric"] == "nll"], "rate", freed, {"title": "NLL, forward-corrected", **labels}
            ),
        ),
        ("share of wrong labels before and after each round of cleaning", cleaning_picture(runs)),
    ]
    found = trained.scores_table(runs, "noise_trained", ("accuracy", "nll", "ece"), ("", "_forward"))
    return Part(runs[0].dataset, sentence(runs), shown, [cleaning_table(runs), found])


def section(runs: Sequence[Run]) -> Section:
    """Encoders trained on wrong labels."""
    return Section(
        "noise_trained",
        "Trained on wrong labels",
        "Labels of bank, fit and val are wrong in a share of the rows before anything is trained: encoders, heads, "
        "baselines, calibration and every choice see only these. Neighbours then clean the bank: each row takes the "
        "label that most of its nearest other rows carry, an encoder is trained on that, and the given labels are "
        "cleaned again in its space. A plain network is trained on the same labels by cross-entropy alone.",
        by_dataset([r for r in runs if "noise_trained" in r.tables], _part),
        "Test labels are clean. What is fitted on wrong labels answers how likely each given label is, and is too "
        "unsure of the true one. Forward-corrected, a method has the temperature under which its answers, mixed up as "
        "cleaning found the labels to be, explain the given labels of val rows; accuracy stays. "
        "The plain network keeps its epoch of best validation accuracy. p values are as measured, "
        f"and a difference is shown where p is below {trained.ALPHA:g}.",
        "dvc exp run -S noise.train=true",
    )

"""Wrong labels that the encoder was trained on too: neighbours that clean them, beside a plain network."""

from collections.abc import Sequence
from functools import partial

from attnknn.report import plots as pictures
from attnknn.report.claims import FEWEST_ERRORS
from attnknn.report.gains import MARGIN, Level, Pair, gained
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Section, Table
from attnknn.report.sections import trained
from attnknn.report.tables import by_dataset, digits_of, fixed

TABLES = {
    "noise_trained": ("rate", *trained.SCORES),
    "noise_trained_paired": ("rate", *trained.PAIRED),
    "cleaning": ("rate", "condition", "round", "quantity", "value"),
}
_LINES: dict[trained.Line, str] = {
    ("cross_entropy", "cnn", "--"): "Plain network, labels as given",
    ("plain", "distance", "--"): "Distance-weighted kNN, labels as given",
    ("plain", "attention", "--"): "Attention, labels as given",
    ("cross_entropy_cleaned", "cnn", "-"): "Plain network, cleaned labels",
    ("cleaned", "distance", "-"): "Distance-weighted kNN, cleaned labels",
    ("cleaned", "attention", "-"): "Attention, cleaned labels",
    ("cleaned", "linear", "-"): "Linear head, cleaned labels",
}
LABELS = {
    "plain": "labels as given",
    "cross_entropy": "labels as given",
    "cleaned": "cleaned labels",
    "cross_entropy_cleaned": "cleaned labels",
}
Asked = dict[str, tuple[trained.Who, trained.Who]]  # name → who is compared with whom
_BESIDE = {"distance": "distance-weighted kNN", "linear": "the linear head", "prototypes": "prototypes"}
_GIVEN, _MENDED = ("cross_entropy", "cnn"), ("cross_entropy_cleaned", "cnn")
_CLEANED: Asked = {"the plain network": (_MENDED, _GIVEN)}
_CLEANED |= {name: (("cleaned", m), ("plain", m)) for m, name in {"attention": "attention", **_BESIDE}.items()}
_KNN: Asked = {
    "both on labels as given": (("plain", "distance"), _GIVEN),
    "kNN alone on cleaned ones": (("cleaned", "distance"), _GIVEN),
    "both on cleaned ones": (("cleaned", "distance"), _MENDED),
}
_ATTENTION: Asked = {name: (("cleaned", "attention"), ("cleaned", method)) for method, name in _BESIDE.items()}
_ADDS = {"supported": "yes", "contradicted": "no"}


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
    pictures.style_axes(axes)
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


def moves(runs: Sequence[Run], level: Level, condition: str, asked: Asked, metric: str) -> dict[str, Pair]:
    """How far the first of two is from the second, by name: in accuracy as it is, else forward-corrected."""
    suffix = "" if metric == "accuracy" else "_forward"
    found = {}
    for name, pair in asked.items():
        mine, other = ((variant, method + suffix) for variant, method in pair)
        found[name] = trained.paired(runs, level, "noise_trained_paired", condition, mine, other, metric)
    return {name: pair for name, pair in found.items() if pair is not None}


def _pays(found: dict[str, Pair]) -> str:
    """For whom cleaning pays."""
    says = {"better": "pays for", "worse": "harms", "no gain that matters": "gives nothing that matters to"}
    says |= {"undecided": "is undecided for", "out of reach": "cannot be judged for"}
    by_word: dict[str, list[str]] = {}
    for name, pair in found.items():
        by_word.setdefault(trained.word(pair), []).append(name)
    parts = []
    for word, names in by_word.items():
        whom = "every method" if len(names) == len(found) > 1 else ", ".join(names)
        parts.append(f"{says[word]} {whom}")
    return "; it ".join(parts) or "was not tested"


def _both(found: Sequence[dict[str, Pair]], digits: int) -> str:
    """Differences in accuracy and in forward-corrected NLL, each with its p and what it says, once where all say it."""
    parts = []
    for metric, pairs in zip(("accuracy", "forward-corrected NLL"), found, strict=True):
        words = {name: trained.word(pair) for name, pair in pairs.items()}
        same = len(set(words.values())) == 1
        shown = [
            f"{name} {trained.brief(pair, digits)}" + ("" if same else f": {words[name]}")
            for name, pair in pairs.items()
        ]
        parts.append(f"{metric} {', '.join(shown)}" + (f", all {next(iter(words.values()))}" if same else ""))
    return "; ".join(parts)


def sentence(runs: Sequence[Run], level: Level) -> str:
    """At each rate: what cleaning gives every method, kNN against plain networks, and what of it is attention's."""
    words, rounds, digits = [], joined(runs, "cleaning"), digits_of(runs)
    for condition in dict.fromkeys(joined(runs, "noise_trained")["condition"]):
        of = rounds[(rounds["condition"] == condition) & (rounds["round"] == rounds["round"].max())]
        mean = of.groupby("quantity")["value"].mean()
        paid = moves(runs, level, condition, _CLEANED, "accuracy")
        scores = []
        for name, pair in paid.items():
            mended, given = (
                trained.value_of(runs, "noise_trained", condition, who, "accuracy") for who in _CLEANED[name]
            )
            scores.append(f"{name} {given} → {mended} ({trained.p_of(pair)})")
        beside, alone = (
            [moves(runs, level, condition, asked, m) for m in ("accuracy", "nll")] for asked in (_KNN, _ATTENTION)
        )
        adds = [_ADDS.get(found, found) for found in (gained(pairs.values()) for pairs in alone)]
        words += [
            f"At {condition}, cleaning mended {100 * mean['mended']:.0f} % of the wrong labels and spoiled "
            f"{100 * mean['spoiled']:.0f} % of the right ones.",
            f"Cleaning {_pays(paid)}; accuracy with labels as given → cleaned: {', '.join(scores)}.",
            f"Distance-weighted kNN less a plain network: {_both(beside, digits)}.",
            f"Does attention add to cleaning? In accuracy {adds[0]}, in NLL {adds[1]}; less what reads the same space "
            f"by the same labels: {_both(alone, digits)}.",
        ]
    return "\n".join(words)


def pairs_table(runs: Sequence[Run], level: Level) -> Table:
    """Every paired comparison: accuracy as it is, NLL forward-corrected on both sides."""
    rows, digits = joined(runs, "noise_trained_paired"), digits_of(runs)
    keys = ["condition", "variant", "method", "baseline_variant", "baseline"]
    shown: list[Sequence[str | Cell]] = []
    for condition, *who in rows.loc[~rows["method"].str.endswith("_forward"), keys].drop_duplicates().to_numpy():
        asked: Asked = {"": ((who[0], who[1]), (who[2], who[3]))}
        names = (f"{pictures.method_name(method)}, {LABELS[variant]}" for variant, method in asked[""])
        cells: list[str | Cell] = []
        for pair in (moves(runs, level, condition, asked, metric)[""] for metric in ("accuracy", "nll")):
            ends = f"{fixed(pair.low, digits, True)} … {fixed(pair.high, digits, True)}"
            cells += [Cell(fixed(pair.difference, digits, True), f"{ends}; {trained.p_of(pair)}"), trained.word(pair)]
        shown.append([condition, *names, *cells])
    head = ["condition", "method", "against", "accuracy", "", "NLL, forward-corrected", ""]
    return Table("paired", "Who is compared with whom, p values as measured", head, shown)


def _part(runs: Sequence[Run], level: Level) -> Part:
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
    found = trained.scores_table(runs, "noise_trained", LABELS, ("accuracy", "nll", "ece"), ("", "_forward"))
    return Part(runs[0].dataset, sentence(runs, level), shown, [cleaning_table(runs), found, pairs_table(runs, level)])


def section(runs: Sequence[Run], level: Level) -> Section:
    """Encoders trained on wrong labels."""
    return Section(
        "noise_trained",
        "Trained on wrong labels",
        "Labels of bank, fit and val are wrong in a share of the rows before anything is trained: encoders, heads, "
        "baselines, calibration and every choice see only these. Neighbours then clean the bank: each row takes the "
        "label that most of its nearest other rows carry, an encoder is trained on that, and the given labels are "
        "cleaned again in its space. Plain networks are trained by cross-entropy alone, on the labels as given and on "
        "the cleaned ones.",
        by_dataset([r for r in runs if "noise_trained" in r.tables], partial(_part, level=level)),
        "Test labels are clean. What is fitted on wrong labels answers how likely each given label is, and is too "
        "unsure of the true one. Forward-corrected, a method has the temperature under which its answers, mixed up as "
        "cleaning found the labels to be, explain the given labels of val rows; accuracy stays. "
        "Encoders are trained for the share `noise.train_share` of the epochs of `train_embedder`, because later ones "
        "learn wrong labels by heart; a plain network is trained for that share and for all of them, and the better by "
        "validation accuracy is kept. Each keeps its best epoch alike; validation labels are wrong as often as others. "
        "Attention adds something where it is better than distance weighting, the linear head and "
        "prototypes alike, and nothing where it is worse than one of them or any gain over all is below "
        f"{MARGIN['accuracy']:g} in accuracy, {MARGIN['nll']:g} in NLL. p values are as measured; better and worse "
        f"need p below {level.alpha:g} and {FEWEST_ERRORS} wrong rows; out of reach is what these data cannot decide.",
        "dvc exp run -S 'noise.train_seeds=[42]'",
    )

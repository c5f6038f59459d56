"""Which representation of images makes good neighbours, and which is separable: kNN beside probes, in the report."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from attnknn.report import plots as pictures
from attnknn.report.claims import OURS
from attnknn.report.differences import judged, over_runs
from attnknn.report.gains import Level
from attnknn.report.results import Run, joined
from attnknn.report.section import Cell, Part, Row, Section, Table
from attnknn.report.tables import by_dataset, digits_of, fixed, p_value

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
    "encoder": "the study's encoder (labels)",
}
LABELLED = "encoder"
READOUTS = {
    "uniform": ("kNN, uniform", "#7f7f7f", "s"),
    "distance": ("kNN by distance", "#0072b2", "o"),
    "attention": ("kNN, attention", "#d55e00", "D"),
    "linear_probe": ("linear probe", "#9c755f", "^"),
    "transformer": ("small transformer", "#117733", "v"),
}
MODES = {"full": "the whole image known", "sparse": "some points known"}
NCE = (("full_nce", "full"), ("sparse_nce", "sparse"))
KNN, PROBE = "distance", "linear_probe"
_SURE = 0.05  # below it an order is not left to chance; of five things p is at least 1/60
_METRICS = {"accuracy": "accuracy", "nll": "NLL"}


def _judged_of(paired: pd.DataFrame, level: Level) -> pd.DataFrame:
    """What fields, contrastive training and attention change in accuracy, judged together within a dataset."""
    rows = paired[paired["metric"] == "accuracy"]
    pairs = list(zip(rows["representation"], rows["baseline"], strict=True))
    named = pd.Series([pair in NCE or pair[1] == "pixels" for pair in pairs], rows.index)
    of_fields = named & rows["readout"].isin((KNN, PROBE))
    attention = (rows["readout"] == OURS) & (rows["baseline_readout"] == "distance")
    keys = (*_WHERE, "baseline", "baseline_readout", "metric")
    return judged(over_runs(rows[of_fields | attention], keys), level)


def _best(scores: pd.DataFrame, mode: str, readout: str, digits: int) -> str:
    """The best representation without labels by one readout, and its accuracy."""
    of = scores[(scores["mode"] == mode) & (scores["readout"] == readout) & (scores["metric"] == "accuracy")]
    value = of.groupby("representation", sort=False)["value"].mean()
    free = value.drop(LABELLED, errors="ignore")
    top = free[free == free.max()].index
    return f"{' and '.join(f'“{NAMES[str(name)]}”' for name in top)} ({fixed(free.max(), digits)})"


def _order(agreed: pd.DataFrame, mode: str) -> str:
    """Whether kNN and the linear probe put the representations in one order, as far as that can be known."""
    rows = agreed[(agreed["mode"] == mode) & (agreed["readout"] == KNN) & (agreed["against"] == PROBE)]
    rho, low, high = rows["rho"].mean(), rows["low"].min(), rows["high"].max()
    n, p = int(rows["representations"].iloc[0]), rows["p"].max()
    ends = f"ρ {fixed(rho, 2)}, {fixed(low, 2)} … {fixed(high, 2)} over resampled test rows"
    if low > 0 and p < _SURE:
        word = "agree"
    elif high < 0 and p < _SURE:
        word = "contradict each other"
    else:
        word = "are not shown to agree or to contradict each other"
    chance = f"of {n} representations chance alone orders so or more strongly with p {p_value(p)}"
    return f"with {MODES[mode]} the orders by kNN and by the linear probe {word} ({ends}; {chance})"


def _against(rows: pd.DataFrame, word: str) -> str:
    """Which representations are found to be better, or worse, than pixels."""
    names = [f"“{NAMES[name]}”" for name in rows[rows["finding"] == word]["representation"]]
    return f"{word} {'none' if not names else 'is' if len(names) == 1 else 'are'} {' and '.join(names)}".rstrip()


def sentence(runs: Sequence[Run], found: pd.DataFrame, digits: int) -> str:
    """Which representation is best for whom; what contrastive training and attention change; and the tension."""
    scores, agreed = joined(runs, "probe"), joined(runs, "probe_agreement")
    lines = []
    for mode, words in MODES.items():
        best = {readout: _best(scores, mode, readout, digits) for readout in (KNN, PROBE)}
        labelled = scores[(scores["mode"] == mode) & (scores["representation"] == LABELLED)]
        labelled = labelled[(labelled["readout"] == KNN) & (labelled["metric"] == "accuracy")]["value"].mean()
        lines.append(
            f"With {words}, the best neighbours without labels are those of {best[KNN]}, and a linear probe does best "
            f"on {best[PROBE]}; neighbours of the encoder that saw labels: {fixed(labelled, digits)}."
        )
    of_fields = found[found["readout"] != OURS]
    for readout, name in ((KNN, "kNN by distance"), (PROBE, "the linear probe")):
        beside = of_fields[(of_fields["baseline"] == "pixels") & (of_fields["readout"] == readout)]
        said = [
            f"with {words} {', '.join(_against(beside[beside['mode'] == mode], word) for word in ('better', 'worse'))}"
            for mode, words in MODES.items()
        ]
        lines.append(f"Fields beside pixels, accuracy of {name}: {'; '.join(said)}; not decided for the others.")
    for readout, name in ((KNN, "kNN by distance"), (PROBE, "the linear probe")):
        said = []
        for one, base in NCE:
            rows = of_fields[(of_fields["readout"] == readout) & (of_fields["representation"] == one)]
            rows = rows[rows["baseline"] == base]
            moves = [
                f"{fixed(r['difference'], digits, True)} with {MODES[r['mode']]} ({r['finding']})"
                for r in rows.to_dict("records")
            ]
            said += [f"from “{NAMES[base]}” by {' and '.join(moves)}"] if moves else []
        if said:
            what = "Contrastive training (the loss, augmented views, and for sparse points further epochs)"
            lines.append(f"{what} moves the accuracy of {name} {', '.join(said)}.")
    lines.append(f"Metric structure against separability: {'; '.join(_order(agreed, mode) for mode in MODES)}.")
    own = found[found["readout"] == OURS]
    counts = [f"{word} on {int((own['finding'] == word).sum())}" for word in ("better", "worse")]
    lines.append(
        f"Attention's accuracy against distance weighting, over {len(own)} representations and modes: "
        f"{', '.join(counts)}, not decided on the others."
    )
    return "\n".join(lines)


def picture(scores: pd.DataFrame, mode: str) -> bytes:
    """Accuracy of every readout by representation, with intervals.

    Args:
        scores: rows of representation, readout, value, low, high: accuracies of one mode, seeds pooled.
    """
    names = [name for name in NAMES if name in set(scores["representation"])]
    figure = pictures.new_figure(3.4, 0.9 + 0.42 * len(names))
    axes = figure.subplots()
    for turn, (readout, (label, colour, marker)) in enumerate(READOUTS.items()):
        of = scores[scores["readout"] == readout]
        y = [names.index(name) + (turn - (len(READOUTS) - 1) / 2) * 0.15 for name in of["representation"]]
        axes.hlines(y, of["low"], of["high"], color=colour, lw=1.4, alpha=0.6)
        axes.plot(of["value"], y, marker, color=colour, ms=3.6, label=label)
    for place in range(1, len(names)):
        axes.axhline(place - 0.5, color=pictures.SOFT, lw=0.5)
    axes.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    title = f"Accuracy, {MODES[mode]}"
    figure.suptitle(title, x=0.01, ha="left", size=10, weight="bold", color=pictures.INK)
    figure.legend(loc="outside lower left", ncols=2, fontsize=7, frameon=False, handlelength=1, columnspacing=1)
    pictures.style_axes(axes)
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    axes.spines["left"].set_visible(False)
    return pictures.as_png(figure)


def _wrapped(name: str) -> str:
    return NAMES[name].replace(", ", ",\n").replace(" (", "\n(")


def _accuracies(scores: pd.DataFrame, metric: str, digits: int, seeds: int, folded: bool) -> Table:
    """A row a representation and a column a readout, the modes below each other."""
    of = scores[scores["metric"] == metric].groupby(list(_WHERE), sort=False)
    found = of.agg(value=("value", "mean"), sd=("value", "std"), low=("low", "min"), high=("high", "max"))
    cells: dict[Any, Any] = found.to_dict("index")
    rows: list[Row] = []
    for mode, words in MODES.items():
        rows.append([words.capitalize()])
        for name, shown in NAMES.items():
            line: list[str | Cell] = [shown]
            for readout in READOUTS:
                one = cells.get((mode, name, readout))
                if one is None:
                    line.append("")
                    continue
                ends = f"{fixed(one['low'], digits)} … {fixed(one['high'], digits)}"
                around = f"± {fixed(one['sd'], digits)}" if seeds > 1 else ends
                line.append(Cell(fixed(one["value"], digits), around))
            if len([cell for cell in line if cell]) > 1:
                rows.append(line)
    head = ["representation", *(label for label, _, _ in READOUTS.values())]
    return Table(f"probe_{metric}", f"{_METRICS[metric].capitalize()} on test rows", head, rows, folded=folded)


def _pairs_table(found: pd.DataFrame, digits: int) -> Table:
    rows: list[Row] = []
    for mode, words in MODES.items():
        rows.append([words.capitalize()])
        for r in found[found["mode"] == mode].to_dict("records"):
            ends = f"{fixed(r['low'], digits, True)} … {fixed(r['high'], digits, True)}"
            one, other = (
                f"{NAMES[r[who]]}: {READOUTS[r[by]][0]}"
                for who, by in (("representation", "readout"), ("baseline", "baseline_readout"))
            )
            move = Cell(fixed(r["difference"], digits, True), ends)
            rows.append([one, other, move, p_value(r["p"]), r["finding"]])
    head = ["of", "less", "difference in accuracy", "p, Holm", "finding"]
    return Table("probe_pairs", "What fields, contrastive training and attention change", head, rows)


def _agreement_table(agreed: pd.DataFrame) -> Table:
    rows: list[Row] = []
    for r in agreed.to_dict("records"):
        one, other = READOUTS[r["readout"]][0], READOUTS[r["against"]][0]
        ends = f"{fixed(r['low'], 2)} … {fixed(r['high'], 2)}"
        rows.append([MODES[r["mode"]], str(r["seed"]), one, other, Cell(fixed(r["rho"], 2), ends), p_value(r["p"])])
    head = ["known", "seed", "readout", "and", "ρ", "exact p"]
    note = "ρ over the representations that learnt without labels; the interval is that of resampled test rows."
    return Table("agreement", "Rank correlation of readouts over representations", head, rows, note, folded=False)


def _part(runs: Sequence[Run], level: Level) -> Part:
    digits, scores = digits_of(runs), joined(runs, "probe")
    found = _judged_of(joined(runs, "probe_paired"), level)
    keys = ["mode", "representation", "readout"]
    accuracy = scores[scores["metric"] == "accuracy"].groupby(keys, sort=False)
    pooled = accuracy.agg(value=("value", "mean"), low=("low", "min"), high=("high", "max")).reset_index()
    drawn = [(f"accuracy, {words}", picture(pooled[pooled["mode"] == mode], mode)) for mode, words in MODES.items()]
    tables = [
        _accuracies(scores, "accuracy", digits, len(runs), folded=False),
        _agreement_table(joined(runs, "probe_agreement")),
        _accuracies(scores, "nll", digits, len(runs), folded=True),
        _pairs_table(found, digits),
    ]
    return Part(runs[0].dataset, sentence(runs, found, digits), drawn, tables)


def section(runs: Sequence[Run], level: Level) -> Section:
    """Representations of images under readouts."""
    return Section(
        "probe",
        "Which representation makes good neighbours",
        "Fields are networks that learn images as functions of their coordinates, without labels. What do their "
        "latents say of the class, with the whole image known and with some of its points, to kNN through the same "
        "bank and heads as everywhere here, to a linear probe and to a small transformer?",
        by_dataset([run for run in runs if all(name in run.tables for name in TABLES)], lambda of: _part(of, level)),
        "kNN and the linear probe read the mean latent, or the pixels. kNN takes them as they are, or each dimension "
        "standardised and then at unit length, as val rows choose. The transformer reads all latents, or patches of "
        "the image, or the pixels that are known, and knows their places. Points are drawn once for each image, the "
        "same for all. Pixels that are not known are those of the nearest known point or of the bank's mean image, as "
        "val rows choose, for kNN, the linear probe and the encoder, which met no such images in training. "
        "The probes learn from bank and fit rows; the memory of kNN is the bank alone, and fit rows fit attention; all "
        "are tuned on the same val rows. Some points are `train_field.share` of the pixels, and no fewer than `least` "
        "of the field's size. Each field and each transformer was trained once a seed: intervals are over test rows, "
        "and another training moves accuracies too. Orders are said to agree, or not to, where the interval over test "
        "rows and the exact test over orders both say so.",
        "dvc exp run -S train_field.share=0.4",
    )

"""Training curves, tuned values and numbers of rows."""

from collections.abc import Sequence
from typing import Any

from attnknn.report import plots
from attnknn.report.results import Run, joined
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import by_dataset

SIZES = ("rows", "bank", "fit", "val", "test", "classes")


def _text(values: dict[str, Any]) -> str:
    if "unchanged" in values:
        return "unchanged: no fit lowered the NLL on validation rows"
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())


def _tuned(runs: Sequence[Run]) -> Table:
    """Tuned or fitted values of each method."""
    rows = []
    for run in runs:
        learned = {k: v for k, v in run.json["train_attention"].items() if k in ("temperature", "prior")}
        for method, values in {"attention, at its start": learned, **run.json["tuned"]}.items():
            if values:
                rows.append([str(run.seed), plots.method_name(method), _text(values)])
    return Table("tuned", "Tuned or fitted values", ["seed", "method", "chosen on validation rows, or fitted"], rows)


def _sizes(runs: Sequence[Run]) -> Table:
    rows = [[str(r.seed), *(f"{r.json['prepare'][key]:,}" for key in SIZES)] for r in runs]
    return Table("sizes", "Rows", ["seed", *SIZES], rows)


def curves(runs: Sequence[Run]) -> list[tuple[str, bytes]]:
    """Training curves of the encoder and the head, means over seeds; dots mark the epochs that were kept."""
    best_epochs = {
        "training": {run.json["train_embedder"]["best_epoch"] for run in runs},
        "attention": {run.tables["attention"].nsmallest(1, "val_nll")["epoch"].item() for run in runs},
    }

    def draw(text: str, table: str, columns: Sequence[str], ylabel: str) -> bytes:
        rows, colours = joined(runs, table), (plots.method_colour(m) for m in ("distance", "attention"))
        lines = [
            plots.Line(c.replace("_", " "), colour, rows.assign(x=rows["epoch"], value=rows[c]), best_epochs[table])
            for c, colour in zip(columns, colours, strict=False)
        ]
        return plots.line_plot(lines, text, "epoch", ylabel)

    return [
        ("encoder loss", draw("Encoder: training loss", "training", ["loss"], "loss")),
        ("encoder validation accuracy", draw("Encoder: kNN on val", "training", ["val_accuracy"], "accuracy")),
        ("attention NLL", draw("Attention head", "attention", ["fit_loss", "val_nll"], "loss")),
    ]


def section(runs: Sequence[Run]) -> Section:
    return Section(
        "training",
        "Training and tuned values",
        "The encoder is trained on bank rows, the head on fit rows that the encoder never saw; validation rows choose "
        "epochs and tune the baselines.",
        by_dataset(runs, lambda group: Part(group[0].dataset, curves(group), [_tuned(group), _sizes(group)])),
        "Dots mark the epoch that was kept. Epoch 0 of the head is tuned distance weighting.",
        "dvc repro train_attention",
    )

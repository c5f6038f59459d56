"""Training curves, tuned values and numbers of rows."""

from collections.abc import Sequence
from typing import Any

from attnknn.report import plots
from attnknn.report.results import Run
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
    """Training curves of the encoder and the head."""
    training, attention = [r.tables["training"] for r in runs], [r.tables["attention"] for r in runs]
    encoders = [r.json["train_embedder"] for r in runs]
    epoch = [{"epoch": e["best_epoch"]} for e in encoders]
    kept = [{"epoch": e["best_epoch"], "val_accuracy": e["val_accuracy"]} for e in encoders]
    best = [t.nsmallest(1, "val_nll").iloc[0] for t in attention]
    best = [{"epoch": b["epoch"], "val_nll": b["val_nll"]} for b in best]
    colour = plots.method_colour
    loss, accuracy = {"loss": colour("distance")}, {"val_accuracy": colour("distance_vector")}
    nll = {"fit_loss": colour("distance"), "val_nll": colour("attention")}
    on_val = plots.curves(training, accuracy, kept, title="Encoder: kNN on val", ylabel="accuracy")
    return [
        ("encoder loss", plots.curves(training, loss, epoch, title="Encoder: training loss", ylabel="loss")),
        ("encoder validation accuracy", on_val),
        ("attention NLL", plots.curves(attention, nll, best, title="Attention head", ylabel="loss")),
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

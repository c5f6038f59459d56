"""How encoder and head were trained, what was tuned, and on how many rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnknn.report import plots as pictures
from attnknn.report.results import Run
from attnknn.report.section import Part, Section, Table
from attnknn.report.tables import by_dataset

SIZES = ("rows", "bank", "fit", "val", "test", "classes")


def _text(values: dict[str, Any]) -> str:
    if "unchanged" in values:
        return "unchanged: no fit lowered the NLL on validation rows"
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())


def _tuned(runs: Sequence[Run]) -> Table:
    """What was chosen or fitted for each method."""
    rows = []
    for run in runs:
        learned = {k: v for k, v in run.json["train_attention"].items() if k in ("temperature", "prior")}
        for method, values in {"attention, at its start": learned, **run.json["tuned"]}.items():
            if values:
                rows.append([str(run.seed), pictures.method_name(method), _text(values)])
    return Table("tuned", "Tuned or fitted values", ["seed", "method", "chosen on validation rows, or fitted"], rows)


def _sizes(runs: Sequence[Run]) -> Table:
    rows = [[str(r.seed), *(f"{r.json['prepare'][key]:,}" for key in SIZES)] for r in runs]
    return Table("sizes", "Rows", ["seed", *SIZES], rows)


def _head(runs: Sequence[Run]) -> str:
    """What fitting the head changed on val, in words."""
    tables = [r.tables["attention"]["val_nll"] for r in runs]
    start, end = (float(np.mean([pick(t) for t in tables])) for pick in (lambda t: t.iloc[0], lambda t: t.min()))
    if end >= start:
        return f"Fitting did not lower the head's validation NLL ({start:.4f}): it stays tuned distance weighting."
    return f"Fitting took the head's validation NLL from {start:.4f} (tuned distance weighting) to {end:.4f}."


def curves(runs: Sequence[Run]) -> list[tuple[str, bytes]]:
    """Training curves of the encoder and the head."""
    training, attention = [r.tables["training"] for r in runs], [r.tables["attention"] for r in runs]
    epoch = [{"epoch": r.json["train_embedder"]["best_epoch"]} for r in runs]
    kept = [e | {"val_accuracy": r.json["train_embedder"]["val_accuracy"]} for e, r in zip(epoch, runs, strict=True)]
    best = [t.nsmallest(1, "val_nll").iloc[0].to_dict() for t in attention]
    best = [{"epoch": b["epoch"], "val_nll": b["val_nll"]} for b in best]
    colour = pictures.method_colour
    loss, accuracy = {"loss": colour("distance")}, {"val_accuracy": colour("distance_vector")}
    nll = {"fit_loss": colour("distance"), "val_nll": colour("attention")}
    on_val = pictures.curves(training, accuracy, kept, title="Encoder: kNN on val", ylabel="accuracy")
    return [
        ("encoder loss", pictures.curves(training, loss, epoch, title="Encoder: training loss", ylabel="loss")),
        ("encoder validation accuracy", on_val),
        ("attention NLL", pictures.curves(attention, nll, best, title="Attention head", ylabel="loss")),
    ]


def _part(runs: Sequence[Run]) -> Part:
    return Part(runs[0].dataset, _head(runs), curves(runs), [_tuned(runs), _sizes(runs)])


def section(runs: Sequence[Run]) -> Section:
    """Training, tuned values and sizes."""
    return Section(
        "training",
        "Training and tuned values",
        "The encoder learns on bank rows, the head on fit rows that the encoder never saw; validation rows choose "
        "epochs and tune the baselines.",
        by_dataset(runs, _part),
        "Dots mark the epoch that was kept. Epoch 0 of the head is tuned distance weighting.",
        "dvc repro train_attention",
    )

"""Representations of images, neural fields among them, read by kNN, linear and transformer probes."""

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from attnknn.core.figure import INK, as_png, new_figure
from attnknn.core.files import read_json
from attnknn.report import plots
from attnknn.report.results import Run, by_dataset, joined
from attnknn.report.sections.examples import png_uri
from attnknn.report.tables import Section, judged_table, scores_table, verdicts_table
from attnknn.report.verdicts import judged

NAMES = {
    "pixels": "pixels",
    "full": "field, whole images",
    "sparse": "field, sparse points",
    "full_nce": "field, whole images + NCE",
    "sparse_nce": "field, sparse points + NCE",
    "full_views": "field, whole images, views",
    "sparse_views": "field, sparse points, views",
    "encoder": "encoder trained with labels",
}
READOUTS = {
    "uniform": ("kNN, uniform", "#7f7f7f"),
    "distance": ("kNN by distance", "#0072b2"),
    "attention": ("kNN, attention", "#d55e00"),
    "linear_probe": ("linear probe", "#9c755f"),
    "transformer": ("small transformer", "#117733"),
}
MODES = {"full": "whole image known", "sparse": "some points known"}


def _tested(paired: pd.DataFrame) -> pd.DataFrame:
    """Differences in accuracy by fields, by contrastive training and by its loss alone, and by attention."""
    rows = paired[paired["metric"] == "accuracy"]
    pairs = list(zip(rows["representation"], rows["baseline"], strict=True))
    named = pd.Series(
        [b == "pixels" or a in (f"{b}_nce", f"{b.removesuffix('_views')}_nce") for a, b in pairs], rows.index
    )
    fields = named & rows["readout"].isin(("distance", "linear_probe"))
    rows = rows[fields | ((rows["readout"] == "attention") & (rows["baseline_readout"] == "distance"))]
    labels = {
        new: [f"{NAMES[r]}: {READOUTS[o][0]}" for r, o in zip(rows[representation], rows[readout], strict=True)]
        for new, representation, readout in (
            ("read", "representation", "readout"),
            ("against", "baseline", "baseline_readout"),
        )
    }
    rows = rows.assign(mode=rows["mode"].map(MODES), **labels)
    return judged(rows, ["dataset", "mode", "read", "against", "metric"])


def probe(runs: Sequence[Run]) -> Section:
    scores, figures, tables, verdicts = joined(runs, "probe"), [], [], []
    if len(scores):
        order = list(NAMES).index
        named = scores.sort_values("representation", key=lambda c: c.map(order), kind="stable").assign(
            mode=scores["mode"].map(MODES),
            readout=scores["readout"].map({name: label for name, (label, _) in READOUTS.items()}),
        )
        for (dataset, mode), own in scores[scores["metric"] == "accuracy"].groupby(["dataset", "mode"], sort=False):
            means = (
                own.groupby(["representation", "readout"], sort=False)[["value", "low", "high"]].mean().reset_index()
            )
            means = means.sort_values("representation", key=lambda c: c.map(order), kind="stable")
            means = means.assign(
                label=[READOUTS[r][0] for r in means["readout"]],
                colour=[READOUTS[r][1] for r in means["readout"]],
                group=means["representation"].map(NAMES),
            )
            text = f"{dataset}: {MODES[str(mode)]}"
            figures.append((text, plots.forest_plot(means, text, "accuracy", None, "value")))
        compared, tests = ["dataset", "mode", "read", "against"], _tested(joined(runs, "probe_paired"))
        main = tests[tests["read"].str.endswith("attention") & tests["against"].str.startswith(NAMES["pixels"])]
        verdicts = verdicts_table("Accuracy on pixels: difference between", main, ["mode", "read", "against"])
        tables = [
            judged_table("field_tests", "Accuracy by fields, contrastive training, attention", tests, compared),
            scores_table(
                "representations",
                "Scores",
                named.assign(representation=named["representation"].map(NAMES)),
                ["mode", "representation", "readout"],
                ("accuracy", "nll"),
            ),
        ]
        agreed = joined(runs, "probe_agreement")
        if len(agreed):
            agreed = agreed.assign(metric="rho", value=agreed["rho"], mode=agreed["mode"].map(MODES))
            agreed["method"] = [
                f"{READOUTS[a][0]}, {READOUTS[b][0]}" for a, b in zip(agreed["readout"], agreed["against"], strict=True)
            ]
            tables.append(
                scores_table(
                    "agreement",
                    "Rank correlation of two readouts over representations",
                    agreed,
                    ["mode", "method"],
                    ["rho"],
                )
            )
    return Section(
        "probe",
        "Representations of images",
        "Latents of neural fields trained without labels, pixels and the encoder's embeddings, read by kNN, a linear "
        "probe and a small transformer. Intervals do not hold the variation between trainings.",
        figures,
        tables,
        "dvc repro probe",
        verdicts=verdicts,
    )


def _tsne(points: pd.DataFrame) -> bytes:
    """The same test rows in every representation, coloured by class."""
    names = [name for name in NAMES if name in set(points["representation"])]
    classes = {name: f"C{i % 10}" for i, name in enumerate(sorted(set(points["actual"].astype(str))))}
    figure = new_figure(plots.WIDTH, 0.3 + 1.62 * -(-len(names) // 2))
    for i, name in enumerate(names):
        axes, rows = figure.add_subplot(-(-len(names) // 2), 2, i + 1), points[points["representation"] == name]
        axes.scatter(rows["x"], rows["y"], 4, [classes[c] for c in rows["actual"].astype(str)], lw=0)
        axes.set(xticks=[], yticks=[])
        axes.set_title(NAMES[name], size=7.5, pad=3, color=INK)
    return as_png(figure)


def field_report(runs: Sequence[Run]) -> Section:
    """Reconstructions and training of the fields, and a t-SNE of every representation of the first seed."""
    psnr, figures, tables, html = joined(runs, "field_psnr"), [], [], Markup()
    for dataset, own in by_dataset(runs, "field_training").items():
        rows = joined(own, "field_training").assign(x=lambda t: t["epoch"], value=lambda t: t["val_psnr"])
        lines = [
            plots.Line(NAMES[v], f"C{i}", rows[rows["variant"] == v])
            for i, v in enumerate(dict.fromkeys(rows["variant"]))
        ]
        figures.append((f"{dataset}, training", plots.line_plot(lines, f"{dataset}: PSNR on val, dB", "epoch")))
        folder = own[0].folder("field_pictures")
        if (folder / "tsne.csv").is_file():
            figures.append((f"{dataset}, t-SNE of test rows by class", _tsne(pd.read_csv(folder / "tsne.csv"))))
            columns = ", ".join(read_json(folder / "pictures.json")["columns"])
            picture = png_uri((folder / "reconstructions.png").read_bytes())
            text = Markup("<figure class='strip'><img src='{}' alt=''><figcaption>{}: {}</figcaption></figure>")
            html += text.format(picture, dataset, columns)
    if len(psnr):
        psnr = psnr.fillna({"baseline": ""}).assign(mode=psnr["mode"].map(MODES), digits=2)
        psnr["metric"] = ["PSNR, dB" if not b else f"above the {b}" for b in psnr["baseline"]]
        psnr["method"] = [NAMES.get(s, s) for s in psnr["source"]]
        tables = [
            scores_table(
                "psnr",
                "PSNR of reconstructed test images",
                psnr,
                ["mode", "method"],
                list(dict.fromkeys(psnr["metric"])),
            )
        ]
    return Section(
        "field_report",
        "Reconstruction by neural fields",
        "A field encodes points of an image into latents and predicts any coordinate from them.",
        figures,
        tables,
        "dvc repro field_report",
        html,
    )

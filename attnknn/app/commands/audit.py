"""`attnknn audit`: which labels are probably wrong."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attnknn.app.commands.arguments import AS_JSON, FORCE, SEPARATOR, changing, check_output, layout_of
from attnknn.app.commands.output import print_table
from attnknn.core.errors import require
from attnknn.core.files import atomic_file

if TYPE_CHECKING:
    import pandas as pd


_TOP = 20


def audit(
    source: Path = typer.Argument(
        help="A model, or labelled rows as `attnknn fit` reads them: a CSV file, a .npy file, a folder of pictures."
    ),
    output: Path = typer.Option(None, "--output", "-o", help="Write all rows to this .csv file, in their order."),
    top: int = typer.Option(_TOP, help="Number of rows to print, the least credible labels first."),
    plot: Path = typer.Option(
        None, help="Draw to this .png file: the first --top pictures, else the expected precision of the first n rows."
    ),
    precision: float = typer.Option(
        None, help="Print how many rows to review for this expected share of wrong labels."
    ),
    target: str = typer.Option(None, help="Column of the labels, in SOURCE or in --rows."),
    rows: Path = typer.Option(None, help="For vectors: a CSV file with a row for each, or a .npy file of labels."),
    encoder: Path = typer.Option(None, help="For pictures: the folder of an encoder."),
    metric: str = typer.Option("l2", help="l2 or cosine."),
    drop: list[str] = typer.Option([], help="A column to leave out; may be repeated."),
    separator: str = SEPARATOR,
    apply: Path = typer.Option(
        None, help="For a model: change it by a CSV file with columns id, decision (keep, relabel or forget) and label."
    ),
    seed: int = typer.Option(0, help="Random seed of the folds."),
    force: bool = FORCE,
    as_json: bool = AS_JSON,
) -> None:
    """Find labels that are probably wrong, without a label known to be right.

    label_quality is the probability that the given label is right; predicted_label the most probable one.
    """
    require(top >= 0, f"--top: {top}; give 0 or more")
    require(output is None or output.suffix.lower() == ".csv", f"--output: {output}; give a .csv file")
    require(metric in ("l2", "cosine"), f"--metric: {metric}; give l2 or cosine")
    require(precision is None or 0 < precision <= 1, f"--precision: {precision}; give a share above 0, up to 1")
    require(0 <= seed < 2**32, f"--seed: {seed}; give a whole number of 0 … {2**32 - 1}")
    inputs = [str(path) for path in (source, rows, encoder, apply) if path is not None]
    file = check_output(output, source, inputs, force)
    require(plot is None or plot.suffix.lower() == ".png", f"--plot: {plot}; give a .png file")
    require(plot is None or plot != output, "--plot and --output: the same file; give two")
    picture = None if plot is None else check_output(plot, source, inputs, force, "--plot")
    if (source / "model.json").is_file():
        unused = {"--target": target, "--rows": rows, "--encoder": encoder, "--drop": drop}
        unused |= {"--metric": metric != "l2", "--separator": separator}
        extra = [name for name, value in unused.items() if value]
        require(not extra, f"{', '.join(extra)}: of labelled rows, which {source}, a model, holds already")
        if apply is not None:
            unused = {
                "--output": output,
                "--plot": plot,
                "--top": top != _TOP,
                "--seed": seed,
                "--precision": precision,
            }
            extra = [name for name, value in unused.items() if value]
            require(not extra, f"{', '.join(extra)}: without effect beside --apply; leave out")
            _apply(source, apply, as_json)
            return
        from attnknn.app.model.model import Model

        model = Model.load(source)
        issues, examples = model.classifier.audit(), model.examples
        issues = issues.assign(decision="", label="")  # to fill in, for --apply
        issues.index = issues.index.rename("id")
    else:
        require(apply is None, f"--apply: {source} is no model; correct the labels there")
        from attnknn.app.model.labelled_rows import load_rows
        from attnknn.classifier.label_issues import find_label_issues

        data = load_rows(source, target, rows, encoder, layout_of(separator), drop)
        trained = f"{source}: a split, whose encoder was trained on its labels; give embeddings of another model"
        require(data.held_out is None, trained)
        examples = data.examples
        issues = find_label_issues(data.X, data.labels, metric=metric, random_state=seed)
        names = [*data.names, ""]  # position −1
        for column in ("supported_by", "contradicted_by"):
            issues[column] = [names[position] for position in issues[column]]
        issues.index = _index(names[:-1])
    if file is not None:
        with atomic_file(file) as draft:
            issues.to_csv(draft)
    if picture is not None:
        from attnknn.app.model.issues_plot import plot_issues

        with atomic_file(picture) as draft:
            draft.write_bytes(plot_issues(issues, examples, top))
    _report(source, issues, top, precision, as_json)
    if output is not None and not as_json:
        typer.echo(f"written to {output}")


def _apply(folder: Path, file: Path, as_json: bool) -> None:
    """Change a model by the decisions in a file: all of them, or none if one is invalid."""
    from attnknn.app.model.model import DECISIONS
    from attnknn.data.read_csv import read_rows

    rows = read_rows(file)
    missing = [name for name in ("id", "decision", "label") if name not in rows]
    require(not missing, f"{file}: no column {', '.join(missing)}; give id, decision and label")
    rows = rows[rows["decision"].notna()]
    for where, row in rows.iterrows():
        require(
            str(row["id"]).isdecimal() and len(str(row["id"])) < 19, f"{where}: id {row['id']}; give a whole number"
        )
        valid = row["decision"] in DECISIONS
        require(valid, f"{where}: decision {row['decision']}; give {', '.join(DECISIONS)}, or nothing")
        complete = row["decision"] != "relabel" or row["label"] == row["label"]
        require(complete, f"{where}: no label; relabel needs one")
    ids = rows["id"].astype(int)
    repeated = rows["id"][ids.duplicated()]
    require(not len(repeated), f"{file}: id {', '.join(repeated[:5])} repeated; decide each row once")
    decisions = zip(ids, rows["decision"], rows["label"], strict=True)
    with changing(folder) as model:
        counts = model.apply_decisions(list(decisions))
    counted = ", ".join(f"{count} {decision}" for decision, count in counts.items())
    typer.echo(json.dumps(counts) if as_json else f"{folder}: changed by {file}: {counted}")


def _index(names: list[str]) -> "pd.Index":
    import pandas as pd

    return pd.Index(names, name="row")


def _report(source: Path, issues: "pd.DataFrame", top: int, precision: float | None, as_json: bool) -> None:
    from rich.table import Table

    from attnknn.classifier.audit import expected_precision, summarise_label_issues

    summary, expected = summarise_label_issues(issues), expected_precision(issues)
    summary["flagged_precision"] = float(expected[summary["flagged"] - 1]) if summary["flagged"] else None
    if precision is not None:
        summary["to_review"] = int((expected >= precision).sum())
    first = issues.sort_values("label_quality", kind="stable").head(top)
    tables = {name: summary.pop(name).to_dict("records") for name in ("classes", "pairs")}
    if as_json:
        issues_first = first.reset_index().to_dict("records")
        answer = {
            "source": str(source),
            "evident": issues.attrs["evident"],
            **summary,
            **tables,
            "issues": issues_first,
        }
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    interval = f"{summary['wrong']:,.0f} ({summary['wrong_low']:,.0f} … {summary['wrong_high']:,.0f})"
    typer.echo(f"{source}: expected number of wrong labels {interval} of {summary['rows']:,}")
    if summary["flagged"]:
        share = f"{summary['flagged_precision']:.0%} of them are expected to be wrong"
        typer.echo(f"flagged: {summary['flagged']:,}, the least credible; {share}")
    if precision is not None:
        typer.echo(f"rows to review for an expected precision of {precision:g}: {summary['to_review']:,}")
    if tables["pairs"]:
        texts = [f"{p['given_label']} → {p['predicted_label']} ({p['flagged']:,})" for p in tables["pairs"][:5]]
        typer.echo(f"flagged most often, given → predicted: {', '.join(texts)}")
    if not issues.attrs["evident"]:
        typer.echo("label noise is not evident, as with few rows or where classes overlap: the number is a guess")
    if not len(first):
        return
    table = Table(box=None)
    for column in (issues.index.name, "given", "predicted", "quality", "contradicted by"):
        table.add_column(str(column))
    for name, row in first.iterrows():
        cells = row["given_label"], row["predicted_label"], f"{row['label_quality']:.2g}", row["contradicted_by"]
        table.add_row(*map(str, (name, *cells)))
    print_table(table)

"""`attnknn fit`."""

import json
from pathlib import Path
from typing import Any

import typer

from attnknn.app.commands.arguments import AS_JSON, MISSING, SEPARATOR, alone, layout_of
from attnknn.core.errors import InputError, require


def fit(
    source: Path = typer.Argument(
        help="A CSV file, a .npy file of vectors, a folder of class folders of pictures, or a split."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="Folder of the model to make."),
    target: str = typer.Option(None, help="Column of the labels, in SOURCE or in --rows."),
    rows: Path = typer.Option(
        None,
        help="For vectors: a CSV file with a row for each, shown beside answers, or a .npy file of labels.",
    ),
    encoder: Path = typer.Option(
        None, help="For pictures and splits: the folder of an encoder, such as models/encoder/digits/42."
    ),
    test: float = typer.Option(0.1, help="Share of each class that is kept out, scored once, and shown as test cases."),
    neighbours: int = typer.Option(50, "--neighbours", "-k", help="Neighbours that answer."),
    weights: str = typer.Option("attention", help="attention, distance or uniform."),
    metric: str = typer.Option("l2", help="l2 or cosine."),
    prototypes: bool = typer.Option(True, help="Whether class means may vote beside neighbours."),
    drop: list[str] = typer.Option([], help="A column to leave out; may be given again."),
    numeric: list[str] = typer.Option([], help="A column of numbers that looks like something else; likewise."),
    categories: list[str] = typer.Option([], help="A column of categories that looks like something else."),
    separator: str = SEPARATOR,
    missing: list[str] = MISSING,
    seed: int = typer.Option(0, help="Draws the rows that are kept out, and the folds."),
    force: bool = typer.Option(False, help="Take the place of what --output names."),
    as_json: bool = AS_JSON,
) -> None:
    """Make a model of rows with labels.

    All rows but the test cases become its memory; how much each neighbour counts is learned on rows taken out in folds.
    """
    _check_output(output, force)
    from sklearn.utils._param_validation import InvalidParameterError

    from attnknn.app.model.fit import teach

    try:
        model, about = teach(
            source,
            target=target,
            rows=rows,
            encoder=encoder,
            layout=layout_of(separator, missing),
            drop=drop,
            kinds_given={"numeric": numeric, "categories": categories},
            test=test,
            seed=seed,
            n_neighbors=neighbours,
            weights=weights,
            metric=metric,
            prototypes=prototypes,
        )
    except InvalidParameterError as error:
        raise InputError(str(error).replace("n_neighbors", "neighbours")) from None
    with alone(output):
        _check_output(output, force)  # somebody may have been faster
        model.save(output)
    if as_json:
        typer.echo(json.dumps({"model": str(output), **about}, ensure_ascii=False))
        return
    typer.echo(f"{output}: {about['memory']:,} rows of {about['classes']} classes in memory")
    if about["left_out"]:
        typer.echo(f"left out as ids: {', '.join(about['left_out'])} (--categories or --numeric takes one in)")
    if about["test"]:
        typer.echo(f"on {about['test']:,} rows kept out: {_scores(about)}")


def _scores(about: dict[str, Any]) -> str:
    return f"accuracy {about['accuracy']:.3f}, NLL {about['nll']:.3f}, ECE {about['ece']:.3f}"


def _check_output(output: Path, force: bool) -> None:
    """Before any work: nothing is lost, and nothing of another kind is ever replaced."""
    from attnknn.classifier.persistence import check_destination

    check_destination(output)
    there = (output / "model.json").is_file()
    require(force or not there, f"{output}: a model is there already; name another folder, or add --force")

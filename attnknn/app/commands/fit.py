"""`attnknn fit`."""

import json
from pathlib import Path

import typer

from attnknn.app.commands.arguments import AS_JSON, SEPARATOR, THREADS, layout_of, set_threads_at_start
from attnknn.app.model.sentences import percent
from attnknn.core.errors import InputError, require

_MOSTLY = 0.9  # mean weight of the null neighbours from which a user is told


def fit(
    source: Path = typer.Argument(
        help="A table (.csv, .tsv, .csv.gz, .parquet), vectors (.npy, .parquet), class folders of pictures, or a split."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="Folder to write the model to."),
    target: str = typer.Option(None, help="Column of the labels, in SOURCE or in --rows."),
    rows: Path = typer.Option(
        None,
        help="For vectors: a CSV file with a row for each, shown with the answers, or a .npy file of labels.",
    ),
    pictures: str = typer.Option(
        "", help="For vectors: the column of --rows that names files of pictures to show, relative to that file."
    ),
    encoder: Path = typer.Option(
        None, help="For pictures and splits: the folder of an encoder, such as models/encoder/digits/42."
    ),
    test: float = typer.Option(0.1, help="Share of each class to hold out, score once, and store as test cases."),
    neighbours: int = typer.Option(50, "--neighbours", "-k", help="Number of neighbours."),
    weights: str = typer.Option("attention", help="attention, distance or uniform."),
    metric: str = typer.Option("l2", help="l2 or cosine."),
    index: str = typer.Option("auto", help="flat, hnsw, ivf or ivfpq; auto: flat up to 100,000 rows, then hnsw."),
    device: str = typer.Option("auto", help="cpu, cuda or cuda:N; auto: a GPU if there is one."),
    threads: int = THREADS,
    null_scores: str = typer.Option(
        "auto", help="What scores classes beside neighbours: shares, means, linear, or auto: the best on held-out rows."
    ),
    prototypes: bool = typer.Option(None, help="--null-scores means, or shares."),
    label_noise: str = typer.Option(None, help="auto: labels may be wrong; estimate how, and correct those that vote."),
    decay: float = typer.Option(None, help="Later rows after which the weight of an added row is halved."),
    drop: list[str] = typer.Option([], help="A column to leave out; may be repeated."),
    store: list[str] = typer.Option(
        [], help="A column to store beside the rows, as person or source, and not to learn from; may be repeated."
    ),
    numeric: list[str] = typer.Option([], help="A column to read as numbers; may be repeated."),
    categories: list[str] = typer.Option(
        [], help="A column to read as categories, or as classes if it is the target; may be repeated."
    ),
    separator: str = SEPARATOR,
    missing: list[str] = typer.Option([], help="A value of CSV files that means missing; may be repeated."),
    seed: int = typer.Option(0, help="Random seed of the held-out rows and the folds."),
    force: bool = typer.Option(False, help="Replace an existing model."),
    as_json: bool = AS_JSON,
) -> None:
    """Fit a model on labelled rows.

    All rows but the test cases become its memory; the weights of neighbours are learned on held-out folds.
    """
    _check_output(output, force)
    set_threads_at_start(threads)
    from sklearn.utils._param_validation import InvalidParameterError

    from attnknn.app.model.fit import fit_model
    from attnknn.classifier.locking import model_lock

    require(label_noise in (None, "auto"), f"--label-noise: {label_noise!r}; give auto, or leave it out")
    layout = layout_of(separator, missing)
    try:
        model, summary = fit_model(
            source,
            target=target,
            rows=rows,
            encoder=encoder,
            layout=layout,
            drop=drop,
            numeric=numeric,
            categories=categories,
            test=test,
            seed=seed,
            stored=store,
            pictures=pictures,
            n_neighbors=neighbours,
            weights=weights,
            metric=metric,
            index=index,
            device=device,
            null_scores=null_scores,
            prototypes="auto" if prototypes is None else prototypes,
            label_noise=label_noise,
            decay=decay,
        )
    except InvalidParameterError as error:
        raise InputError(str(error).replace("n_neighbors", "neighbours")) from None
    with model_lock(output):
        _check_output(output, force)  # another process may have written a model in the meantime
        model.save(output)
    if as_json:
        typer.echo(json.dumps({"model": str(output), **summary}, ensure_ascii=False))
        return
    typer.echo(f"{output}: {summary['memory']:,} rows of {summary['classes']} classes in memory")
    if label_noise and summary["label_noise"] is None:
        typer.echo("label noise: none evident; labels are taken as given")
    elif label_noise:
        typer.echo(f"labels corrected: {summary['labels_corrected']:,} of {summary['memory']:,}")
    if summary["left_out"]:
        typer.echo(f"left out as ids: {', '.join(summary['left_out'])} (--categories or --numeric includes a column)")
    if summary["duplicates"]:
        counts = f"{summary['duplicates']:,} ({summary['conflicting_duplicates']:,} with another label)"
        split = "most of the rows and held out one by one" if summary["mostly_duplicates"] else "held out together"
        typer.echo(f"duplicates, which are {split}: {counts}")
    if summary["test_duplicates"]:
        typer.echo(f"test rows that are identical to rows in memory: {summary['test_duplicates']:,}")
    if summary["seen_by_encoder"]:
        typer.echo(
            f"warning: {summary['seen_by_encoder']:,} of the pictures trained this encoder, with their labels: they "
            "are nearer to their class than new ones, and the scores too good. Fit the encoder's split (data/split/…), "
            "of which rows were kept out, or other pictures",
            err=True,
        )
    if summary["test"]:
        metrics = f"accuracy {summary['accuracy']:.3f}, NLL {summary['nll']:.3f}, ECE {summary['ece']:.3f}"
        as_given = " (of the labels as given)" if label_noise else ""
        typer.echo(f"on {summary['test']:,} rows held out: {metrics}{as_given}")
    if summary.get("null_weight", 0) > _MOSTLY:
        from attnknn.classifier.explanation import NULL_NAMES

        name, share = NULL_NAMES[summary["null_scores"]], percent(summary["null_weight"])
        typer.echo(f"weight of the {name}: {share}, of neighbours hardly any; --null-scores shares lets them decide")
    if "no_test" in summary:
        typer.echo(f"no test rows: {summary['no_test']}")


def _check_output(output: Path, force: bool) -> None:
    """Refuse to overwrite a model without --force, and anything else in any case."""
    from attnknn.classifier.persistence import check_destination

    check_destination(output)
    exists = (output / "model.json").is_file()
    require(force or not exists, f"{output}: holds a model already; name another folder, or add --force")

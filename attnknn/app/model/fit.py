"""Fit a model from a CSV file, vectors, an image folder or a split of the pipeline."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console

from attnknn.app.model.inputs import Rows
from attnknn.app.model.labelled_rows import LabelledRows, load_rows
from attnknn.app.model.model import Cases, Model
from attnknn.classifier.estimator import AttnKNNClassifier
from attnknn.classifier.memory import Memory
from attnknn.classifier.scaling import refuse_dwarfing
from attnknn.core.duplicates import duplicate_counts
from attnknn.core.errors import require
from attnknn.evaluation.metrics import scores

_MAX_CASES = 2000  # stored with a model
_WEIGHED = 200  # test rows that `null_weight` is averaged over


def fit_model(
    source: Path,
    *,
    target: str | None = None,
    rows: Path | None = None,
    encoder: Path | None = None,
    layout: dict[str, Any] | None = None,
    drop: Sequence[str] = (),
    numeric: Sequence[str] = (),
    categories: Sequence[str] = (),
    test: float = 0.1,
    seed: int = 0,
    stored: Sequence[str] = (),
    pictures: str = "",
    **params: Any,
) -> tuple[Model, dict[str, Any]]:
    """Fit a model and score it on held-out rows.

    Args:
        source: a CSV file with a column `target`; a .npy file (N, D) with its labels in `rows`; a folder of class
            folders of images, or of such folders in train/ and test/, with an `encoder`; or a `Split` of the pipeline
            with the encoder trained on its bank.
        target: column of the labels.
        rows: a CSV file with a row for each vector, or a .npy file of labels.
        encoder: folder of an `Encoder`.
        layout: keyword arguments of `read_csv.row_chunks`, for CSV files.
        drop: columns to leave out.
        numeric, categories: columns to read as that kind; see `schema.column_kinds`. With `target` in `categories`
            every label is a class, continuous numbers too.
        test: share of the rows of each class to hold out; ignored for a split and for a folder test/.
        stored: columns of a table to store beside its rows, and not to learn from.
        pictures: column of `rows` with the files of pictures to show, relative to it.
        seed: for the held-out rows; also the classifier's `random_state`.
        params: of `AttnKNNClassifier`.

    Returns:
        The model, and a dict with the numbers of rows in the memory (`memory`), `classes`, held-out rows (`test`),
        labels of the memory that were corrected (`labels_corrected`) and pictures that trained the encoder with their
        labels (`seen_by_encoder`), T of `label_noise`, the columns left out as ids (`left_out`), `duplicate_counts`,
        `mostly_duplicates` and, if rows were held out, their `metrics.scores`, what the null neighbours' scores are and
        their mean weight (`null_scores`, `null_weight`), or the reason why none were held out (`no_test`).

    Raises:
        InputError: an argument is missing or does not fit the source.
    """
    data = load_rows(source, target, rows, encoder, layout, drop, numeric, categories, test, seed, stored, pictures)
    model, summary = _fit_and_score(data, seed, params)
    if test and not summary["test"]:
        summary["no_test"] = _why_no_test(data, test)
    return model, summary


def _fit_and_score(data: LabelledRows, seed: int, params: dict[str, Any]) -> tuple[Model, dict[str, Any]]:
    X, labels, held_out = data.X, data.labels, data.held_out
    in_memory = ~data.is_test if held_out is None else ~data.is_test & ~held_out
    classes, n_rows = np.unique(labels[in_memory]), int(in_memory.sum())
    distinct, share = (
        f"{len(classes)} distinct values in {n_rows} rows",
        " or a smaller --test" * bool(data.is_test.any()),
    )
    require(len(classes) <= max(2, n_rows // 2), f"labels: {distinct} are not classes; give a column of classes{share}")
    require(n_rows > 2 or held_out is not None, f"memory: {n_rows} rows, too few to hold some out; give more{share}")
    if params.get("metric") != "cosine":
        columns = data.input.schema.features if isinstance(data.input, Rows) and not data.input.encoder else ()
        refuse_dwarfing(X, data.names, columns)
    classifier = AttnKNNClassifier(random_state=seed, **params)
    head_rows = None if held_out is None else (X[held_out], labels[held_out])
    classifier.set_params(verbose=Console(stderr=True).is_terminal)
    classifier.fit(X[in_memory], labels[in_memory], held_out=head_rows).set_params(verbose=False)
    memory = cast(Memory, classifier.memory_)
    test = np.flatnonzero(data.is_test & np.isin(labels, classes))
    summary: dict[str, Any] = {
        "memory": n_rows,
        "classes": len(classes),
        "test": len(test),
        "left_out": list(data.left_out),
        "seen_by_encoder": data.seen,
        **duplicate_counts(data.first, labels, data.is_test),
        "labels_corrected": int((memory.y != memory.given_y).sum()),
        "label_noise": None if classifier.transition_ is None else classifier.transition_.tolist(),
        "mostly_duplicates": bool((data.groups != data.first).any()),
    }
    cases = None
    if len(test):
        probs = np.maximum(classifier.predict_proba(X[test]), np.finfo(np.float32).tiny)
        summary |= scores(probs, np.searchsorted(classes, labels[test]))
        sample = np.sort(np.random.default_rng(seed).permutation(test)[:_MAX_CASES])
        cases = Cases(X[sample], labels[sample], data.examples.take(sample))
        null = classifier.explain(X[sample[:_WEIGHED]]).null
        summary |= {"null_scores": classifier.null_scores_, "null_weight": float(null.sum(1).mean())}
    return Model(classifier, data.input, data.examples.take(np.flatnonzero(in_memory)), cases), summary


def _why_no_test(data: LabelledRows, test: float) -> str:
    """Why a share above 0 gave no test rows, and what to do."""
    if data.is_test.any():
        return "all are of classes that no other row has"
    largest = max(Counter(data.labels.tolist()).values())
    if largest * test < 1:
        return f"{test:g} of the largest class, of {largest} rows, is less than one; give more rows or a larger --test"
    return f"identical rows are held out together, and exceed {test:g} of their class; give a larger --test"

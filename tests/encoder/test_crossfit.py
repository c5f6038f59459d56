"""Folds: each bank row is held out once, and the held-out part of the dataset never appears."""

import dataclasses

import numpy as np
import pytest

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError
from attnknn.encoder.crossfit import fold_splits
from attnknn.neighbours.search import memory, retrieve
from synthetic import blobs, embedded, fold_parts

Folds = tuple[np.ndarray, np.ndarray, list[np.ndarray]]


@pytest.fixture(params=[2, 3, 5])
def folds(request: pytest.FixtureRequest) -> Folds:
    split = blobs(182)
    return split.y, split.part, fold_parts(split.y, split.part, request.param, seed=0)


def test_fault_3_each_bank_row_is_held_out_once_and_no_row_that_the_dataset_holds_out_is_used(folds: Folds) -> None:
    """With `refit` the fit and val rows of the dataset count as bank rows."""
    y, part, parts = folds
    refit = fold_parts(y, part, len(parts), seed=0, refit=True)
    for result, known in ((parts, part == BANK), (refit, part != TEST)):
        np.testing.assert_array_equal(np.isin(result, (FIT, VAL)).sum(0), known)
        for fold in result:
            assert fold.dtype == np.int8
            np.testing.assert_array_equal(fold == TEST, ~known)


def test_fault_2_the_bank_of_a_fold_never_holds_its_fit_and_val_rows() -> None:
    data = embedded(blobs(182))
    for part in fold_parts(data.y, data.part, 3, seed=0):
        fold = dataclasses.replace(data, part=part)
        held = np.concatenate([fold.rows(FIT), fold.rows(VAL)])
        assert not np.isin(held, memory(fold).ids).any()
        ids = retrieve(fold, 20, (3, 7)).neighbours.ids
        assert not np.isin(ids, held).any()
        assert (data.part[ids] == BANK).all(), "nor does it hold a row that the dataset holds out"


def test_classes_are_shared_out_evenly(folds: Folds) -> None:
    """A fold holds out n_c/folds rows of a class, up to one, and gives half of them, up to one, to fit and to val."""
    y, part, parts = folds
    sizes = np.bincount(y[part == BANK])
    for fold in parts:
        fit, val = (np.bincount(y[fold == p], minlength=3) for p in (FIT, VAL))
        assert (np.abs(fit + val - sizes / len(parts)) <= 1).all()
        assert (np.abs(fit - val) <= 1).all()
        assert 0 <= fit.sum() - val.sum() <= 1


def test_the_seed_decides_and_held_out_labels_do_not(folds: Folds) -> None:
    y, part, parts = folds
    other = np.where(part == BANK, y, (y + 1) % 3)
    for labels in (y, other):
        np.testing.assert_array_equal(fold_parts(labels, part, len(parts), seed=0), parts)
    assert not np.array_equal(fold_parts(y, part, len(parts), seed=1), parts)


def test_more_folds_than_rows_of_the_rarest_class() -> None:
    y = np.array([0] * 10 + [1] * 4 + [0, 1, 0, 1])
    part = np.array([BANK] * 14 + [FIT, VAL, TEST, TEST], dtype=np.int8)
    assert len(fold_parts(y, part, 4, seed=0)) == 4
    for folds in (1, 5):
        with pytest.raises(InputError, match=rf"folds: {folds}; the rarest class has 4 bank rows; give 2 … 4"):
            fold_parts(y, part, folds, seed=0)


def test_identical_rows_are_in_one_fold_and_one_half_of_it() -> None:
    split = blobs(120)
    x, y = np.tile(split.x, (2, 1)), np.tile(split.y, 2)
    y[120:130] = 0  # some with another label
    copied = Split(x, y, np.tile(split.part, 2), split.classes, split.features)
    folds = [fold.part for fold in fold_splits(copied, 4, seed=0)]
    bank = np.flatnonzero(copied.part == BANK)
    np.testing.assert_array_equal(sum((part[bank] != BANK).astype(int) for part in folds), 1)
    for part in folds:
        np.testing.assert_array_equal(part[:120], part[120:])


def test_named_groups_are_in_one_fold_and_one_half_of_it() -> None:
    split = blobs(240)
    bank = split.rows(BANK)
    groups = np.arange(240)
    groups[bank] = np.arange(len(bank)) // 4
    for fold in fold_splits(dataclasses.replace(split, groups=groups), 3, seed=0):
        np.testing.assert_array_equal(fold.part[bank], fold.part[bank][np.arange(len(bank)) // 4 * 4])

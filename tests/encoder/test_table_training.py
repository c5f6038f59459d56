"""Encoders of tables learn from bank rows only."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Predictions, Split
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.crossfit import fold_embeddings
from attnknn.encoder.fit import fit_and_embed, fit_encoder, fit_plain_classifier
from attnknn.experiments.train_splits import train_split
from attnknn.neighbours.space import EmbeddingSpace
from import_closure import ROOT
from pipeline.settings import Params
from synthetic import blobs, embedded


def settings() -> TrainEmbedder:
    """The project's own settings for iris, an epoch long, with piecewise-linear embeddings and two folds."""
    configured = Params(ROOT, "iris").train_embedder
    numeric = configured.numeric.model_copy(update={"kind": "piecewise", "bins": 4})
    return configured.model_copy(update={"epochs": 1, "numeric": numeric, "folds": 2})


def with_other_values(split: Split, *parts: int) -> Split:
    """The same with other numbers in the rows of some parts."""
    x = np.array(split.x)
    rows = np.isin(split.part, parts)
    x[rows] = 50 + 3 * x[rows]
    return replace(split, x=x)


def test_an_encoder_learns_nothing_of_rows_outside_the_bank() -> None:
    split = blobs(182)

    def weights(data: Split) -> dict[str, torch.Tensor]:
        return fit_encoder(data, settings(), 0, "cpu", "")[0].state_dict()

    one = weights(split)
    torch.testing.assert_close(weights(with_other_values(split, FIT, VAL, TEST)), one, rtol=0, atol=0)
    moved = weights(with_other_values(split, BANK))
    assert any(not torch.equal(tensor, moved[name]) for name, tensor in one.items())


def test_columns_are_the_same_in_every_fold_and_components_those_of_its_bank() -> None:
    split = blobs(182)
    raw, pca = (settings().model_copy(update={"representation": kind, "embed_dim": 3}) for kind in ("raw", "pca"))
    columns = split.x / np.linalg.norm(split.x, axis=1, keepdims=True)
    for fold in fold_embeddings(split, raw, 0, "cpu", ""):
        np.testing.assert_allclose(fold.z, columns, atol=1e-6)
    for fold, other in zip(
        fold_embeddings(split, pca, 0, "cpu", ""),
        fold_embeddings(with_other_values(split, FIT, VAL, TEST), pca, 0, "cpu", ""),
        strict=True,
    ):
        bank = fold.rows(BANK)
        centred = split.x - split.x[bank].mean(0)
        e = centred @ np.linalg.svd(centred[bank], full_matrices=False)[2][:3].T
        z = e / np.linalg.norm(e, axis=1, keepdims=True)
        np.testing.assert_allclose(np.abs(fold.z), np.abs(z), atol=1e-4)
        np.testing.assert_array_equal(fold.z[bank], other.z[bank])


def test_an_encoder_that_is_a_plain_classifier_is_not_trained_again(tmp_path: Path) -> None:
    split = blobs(182)
    plain = TrainEmbedder(encoder="mlp", widths=[5], epochs=2, batch_size=16)
    own, common = embedded(split), (0, "cpu", "", tmp_path / "state")
    embeddings, (row,) = fit_plain_classifier(split, plain, *common, own, {"epoch": 2})
    assert embeddings is own
    rows = split.part == VAL
    log_p = log_softmax(own.logits[rows], axis=1)
    nll = -log_p[np.arange(len(log_p)), split.y[rows]].mean()
    accuracy = (log_p.argmax(1) == split.y[rows]).mean()
    assert row == {"epoch": 2, "val_accuracy": accuracy, "val_nll": pytest.approx(nll, rel=1e-5)}
    projected = plain.model_copy(update={"embed_dim": 4})
    embeddings, history = fit_plain_classifier(split, projected, *common, own, row)
    assert embeddings.z.shape[1] == 5, "on the backbone's features"
    assert len(history) == 2
    separate = plain.model_copy(update={"separate_network": True})
    embeddings, _ = fit_plain_classifier(split, separate, *common, own, row)
    expected, _ = fit_and_embed(split, plain, 1, "cpu", "", classifier=True)
    np.testing.assert_array_equal(embeddings.logits, expected.logits)


@pytest.mark.parametrize("refit", [False, True])
def test_with_refit_memories_and_members_have_fit_and_val_rows_and_never_test_rows(tmp_path: Path, refit: bool) -> None:
    split, search = blobs(182), {"k_max": 8, "sizes": (3, 8), "device": "cpu"}
    train_split(split, settings(), search, refit, ["raw-uniform"], 1, 0, tmp_path)
    known = np.flatnonzero(split.part != TEST) if refit else split.rows(BANK)
    space = EmbeddingSpace.load_whole(tmp_path / "larger_bank")
    members = EmbeddingSpace.load_folds(tmp_path / "members")
    assert len(members) == 2
    for memory in (space, *members):
        np.testing.assert_array_equal(memory.embeddings.rows(BANK), known)
        np.testing.assert_array_equal(memory.embeddings.rows(TEST), split.rows(TEST))
        assert np.isin(memory.neighbours.ids[memory.neighbours.ids >= 0], known).all()
    np.testing.assert_array_equal(Predictions.load(tmp_path / "peers").rows, split.rows(TEST))
    # Without it the members are the encoders of the cross-fit themselves; with it they have learnt anew.
    folds = EmbeddingSpace.load_folds(tmp_path / "folds")
    same = [np.array_equal(one.embeddings.z, other.embeddings.z) for one, other in zip(members, folds, strict=True)]
    assert same == [not refit] * 2

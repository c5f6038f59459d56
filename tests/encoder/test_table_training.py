"""What is learnt of a table, and from which of its rows."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stages.params import check

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Predictions, Split
from attnknn.neighbours.space import EmbeddingSpace
from import_closure import ROOT
from stages.train_embedder import train
from stages.train_splits import one
from synthetic import blobs


def settings(**changed: object) -> SimpleNamespace:
    """The project's own settings for iris, an epoch long, with piecewise-linear embeddings."""
    p = check(ROOT / "params.yaml")[1]["iris"]
    numeric = p.train_embedder.numeric.model_copy(update={"kind": "piecewise", "bins": 4})
    t = p.train_embedder.model_copy(update={"epochs": 1, "numeric": numeric})
    named = {"k_max": 8, "evidence": p.evidence, "build_index": p.build_index, "train_embedder": t}
    named |= {"crossfit": p.crossfit.model_copy(update={"folds": 2}), "peers": p.peers, "splits": p.splits}
    return SimpleNamespace(**named | changed)


def elsewhere(split: Split, *parts: int) -> Split:
    """The same with other numbers in the rows of some parts."""
    x = np.array(split.x)
    x[np.isin(split.part, parts)] = 50 + 3 * x[np.isin(split.part, parts)]
    return replace(split, x=x)


def test_an_encoder_learns_nothing_of_rows_outside_the_bank() -> None:
    split, t = blobs(182), settings().train_embedder
    one, other = (train(of, t, 0, "cpu", "", None)[0].state_dict() for of in (split, elsewhere(split, FIT, VAL, TEST)))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=0, atol=0, msg=name)
    moved = train(elsewhere(split, BANK), t, 0, "cpu", "", None)[0].state_dict()
    assert any(not torch.equal(tensor, moved[name]) for name, tensor in one.items())


@pytest.mark.parametrize("refit", [False, True])
def test_with_refit_memories_and_members_have_fit_and_val_rows_and_never_test_rows(tmp_path: Path, refit: bool) -> None:
    split, p = blobs(182), settings()
    p.splits = p.splits.model_copy(update={"refit": refit})
    p.peers = p.peers.model_copy(update={"methods": ["raw-uniform"], "tries": 1})
    one(split, 0, p, "cpu", tmp_path)
    known = np.flatnonzero(split.part != TEST) if refit else split.rows(BANK)
    asked, members = EmbeddingSpace.load_whole(tmp_path / "asked"), EmbeddingSpace.load_folds(tmp_path / "members")
    assert len(members) == 2
    for memory in (asked, *members):
        np.testing.assert_array_equal(memory.embeddings.rows(BANK), known)
        np.testing.assert_array_equal(memory.embeddings.rows(TEST), split.rows(TEST))
        assert np.isin(memory.neighbours.ids[memory.neighbours.ids >= 0], known).all()
    np.testing.assert_array_equal(Predictions.load(tmp_path / "peers").rows, split.rows(TEST))
    # Without it the members are the encoders of the cross-fit themselves; with it they have learnt anew.
    same = [
        np.array_equal(member.embeddings.z, fold.embeddings.z)
        for member, fold in zip(members, EmbeddingSpace.load_folds(tmp_path / "folds"), strict=True)
    ]
    assert same == [not refit] * 2

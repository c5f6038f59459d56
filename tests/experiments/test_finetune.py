"""Head and encoder fine-tuned together: what is trained, on which rows, and what is kept."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import FIT, TEST, VAL, Split
from attnknn.encoder.encoder import Encoder, embed_split
from attnknn.evaluation import metrics
from attnknn.experiments.finetune import COLUMNS, compare_finetuned, finetune, last_layers, with_query
from attnknn.heads.attention import Attention
from attnknn.heads.classify import classify
from attnknn.heads.fit import fit_head
from attnknn.heads.registry import LearnedHead
from attnknn.neighbours.search import retrieve
from synthetic import FITTING, SCORING, blobs, neighbourhood, part_nll, pictures

K = 11
SEARCH: dict[str, Any] = {"k_max": K, "sizes": (3, 7), "metric": "l2", "device": "cpu"}
SETTINGS: dict[str, Any] = {
    "epochs": 3, "lr": 0.01, "head_lr": 0.003, "batch_size": 32, "seed": 5, "bf16": False,
}  # fmt: skip
Fitted = tuple[Split, Encoder, LearnedHead]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    split = blobs(240, noise=1.5)
    torch.manual_seed(0)
    encoder = Encoder("mlp", (7,), 3, [13], 5).eval()
    space = retrieve(embed_split(encoder, split), **SEARCH)
    parts = {"features": ["distance", "agreement"], "hidden": 4}
    start = {"temperatures": [0.1, 1.0], "priors": [0.01, 0.1]}
    return split, encoder, fit_head([space], k_train=K, parts=parts, **FITTING, **start, seed=0)[0]


def finetuned(fitted: Fitted, split: Split | None = None, **settings: Any) -> tuple[Encoder, LearnedHead, list]:
    encoder, head = copy.deepcopy(fitted[1:])
    return encoder, head, finetune(split or fitted[0], encoder, head, K, SEARCH, **{**SETTINGS, **settings})


def changed(before: torch.nn.Module, after: torch.nn.Module) -> set[str]:
    other = after.state_dict()
    return {name for name, t in before.state_dict().items() if not torch.equal(t, other[name])}


def test_last_layers_start_at_a_weight_matrix_and_leave_out_the_linear_head() -> None:
    encoder = Encoder("mlp", (7,), 3, [13], 5)
    names = {id(p): name for name, p in encoder.named_parameters()}
    assert [names[id(p)] for p in last_layers(encoder, 1)] == ["projection.4.weight", "projection.4.bias"]
    assert names[id(last_layers(encoder, 2)[0])] == "projection.0.weight"
    assert names[id(last_layers(encoder, 99)[0])] == "backbone.0.weight"
    convnet = Encoder("convnet", (1, 8, 8), 3, [4, 6], 0)
    (weight, *others) = last_layers(convnet, 1)
    assert weight.shape[0] == 6
    assert [p.ndim for p in others] == [1]
    assert last_layers(Encoder("raw", (1, 8, 8), 3, [], 0), 1) == []
    assert [p.ndim for p in last_layers(Encoder("raw", (1, 8, 8), 3, [], 5), 1)] == [2, 1]


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_similarities_of_an_unchanged_query_are_those_stored_and_have_a_gradient(metric: str) -> None:
    batch = neighbourhood(metric=metric, missing=True)
    query = batch.require("query").clone().requires_grad_()
    result = with_query(batch, query, metric)
    torch.testing.assert_close(result.sims, batch.sims)
    result.sims[torch.isfinite(result.sims)].sum().backward()
    assert query.grad is not None
    assert torch.isfinite(query.grad).all()
    assert (query.grad != 0).any(1).all()


def test_only_the_last_layers_and_the_head_are_trained(fitted: Fitted) -> None:
    _, encoder, head = fitted
    after, head_after, history = finetuned(fitted, layers=1)
    assert changed(encoder, after) == {"projection.4.weight", "projection.4.bias"}
    assert changed(head, head_after)
    assert history[-1]["fit_loss"] < history[1]["fit_loss"]
    after, head_after, _ = finetuned(fitted, layers=0)
    assert changed(encoder, after) == set()
    assert changed(head, head_after)
    after, head_after, history = finetuned(fitted, layers=1, epochs=0)
    assert changed(encoder, after) | changed(head, head_after) == set()
    assert len(history) == 1
    assert math.isnan(history[0]["fit_loss"])


def test_the_encoder_is_trained_through_the_linear_head_too(fitted: Fitted) -> None:
    split, encoder, _ = fitted
    linear = Attention(5, 3, 2, 0.1, 0.01, linear=True, neighbours=False)
    _, _, history = finetuned((split, encoder, linear), layers=1, head_lr=1e-9)
    losses = [row["fit_loss"] for row in history[1:]]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.1


def test_statistics_of_batch_norm_are_fixed() -> None:
    split = pictures(120)
    convnet = Encoder("convnet", (1, 8, 8), 3, [4], 0).eval()
    convnet.fit_normalisation(split.x)
    after, _, _ = finetuned((split, convnet, Attention(4, 3, 2, 0.1, 0.01)), layers=1)
    buffers = {name for name, _ in convnet.named_buffers()}
    assert any("running_mean" in name for name in buffers)
    assert changed(convnet, after)
    assert not changed(convnet, after) & buffers


def test_the_kept_epoch_is_best_on_val_with_every_row_embedded_anew(fitted: Fitted) -> None:
    split = fitted[0]
    encoder, head, history = finetuned(fitted, layers=1, lr=0.001)
    best = min(row["val_nll"] for row in history)
    assert best < history[0]["val_nll"]
    assert part_nll(head, [retrieve(embed_split(encoder, split), **SEARCH)], VAL, K) == pytest.approx(best, rel=1e-4)
    worse, head, history = finetuned(fitted, layers=2, lr=3.0, head_lr=1.0)
    assert min(history, key=lambda row: row["val_nll"])["epoch"] == 0
    assert changed(fitted[1], worse) | changed(fitted[2], head) == set(), "the start is kept"


def test_faults_2_and_4_test_rows_are_not_read_and_val_rows_choose_the_epoch_only(fitted: Fitted) -> None:
    split = fitted[0]
    _, _, history = finetuned(fitted, layers=1)
    x, y = np.array(split.x), np.array(split.y)
    test, val = split.rows(TEST), split.rows(VAL)
    x[test], y[test] = 100, 0
    _, _, unread = finetuned(fitted, replace(split, x=x, y=y), layers=1)
    np.testing.assert_equal(unread, history)
    y = np.array(split.y)
    y[val] = np.roll(y[val], 1)
    _, _, other = finetuned(fitted, replace(split, y=y), layers=1)
    losses = [[row["fit_loss"] for row in rows] for rows in (history, other)]
    np.testing.assert_equal(*losses)
    y[split.rows(FIT)] = np.roll(y[split.rows(FIT)], 1)
    assert finetuned(fitted, replace(split, y=y), layers=1)[2][-1]["fit_loss"] > history[-1]["fit_loss"]


def test_the_table_compares_with_the_head_alone_and_as_it_was(fitted: Fitted) -> None:
    split, encoder, head = fitted
    settings = {name: value for name, value in SETTINGS.items() if name != "seed"}
    table = compare_finetuned(split, encoder, head, K, SEARCH, SCORING, 5, 1, **settings)
    assert all(tuple(row) == COLUMNS for row in table)
    rows = {(row["source"], row["metric"]): row for row in table}
    assert {source for source, _ in rows} == {"head and encoder", "head alone", "before"}
    space = retrieve(embed_split(encoder, split), **SEARCH)
    before = metrics.scores(classify(head, space, split.rows(TEST), K), split.y[split.rows(TEST)], SCORING["bins"])
    together = rows["head and encoder", "nll"]
    assert rows["before", "nll"]["value"] == pytest.approx(before["nll"])
    assert rows["before", "nll"]["difference"] == pytest.approx(together["value"] - before["nll"])
    assert rows["before", "nll"]["best_epoch"] == 0
    assert together["difference"] is None
    assert together["val_nll"] <= together["val_nll_start"] == rows["before", "nll"]["val_nll"]

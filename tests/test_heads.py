"""Weights and votes that can be checked by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnknn.errors import InputError
from attnknn.heads import Attention, Distance, Uniform
from attnknn.votes import class_shares, vote
from data import neighbourhoods

SHARES = torch.tensor([0.5, 0.3, 0.2])


def trained(metric: str = "l2", d: int = 7) -> Attention:
    head = Attention(d, 1.7, 0.05, metric, unit=3.0)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in head.parameters():
            p += 0.3 * torch.randn(p.shape, generator=g)
    return head


HEADS = [Uniform(3, 0.1), Distance(5, 0.7, 0.1), Attention(7, 0.7, 0.1), trained()]


def test_uniform_by_hand() -> None:
    """Three neighbours of classes 1, 1, 0 share .9; the null neighbour gives .1 of the class shares."""
    query, keys, sims = torch.zeros(1, 2), torch.zeros(1, 4, 2), torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    labels = torch.tensor([[1, 1, 0, 2]])
    probs = vote(*Uniform(3, 0.1)(query, keys, sims, labels), labels, SHARES)
    torch.testing.assert_close(probs, torch.tensor([[0.3 + 0.05, 0.6 + 0.03, 0.02]]))


def test_distance_by_hand() -> None:
    """exp(−1/2), exp(−2/2) over their sum, times .8; the third is cut off by k = 2."""
    query, keys, sims = torch.zeros(1, 2), torch.zeros(1, 3, 2), torch.tensor([[-1.0, -2.0, -3.0]])
    weights, null = Distance(2, 2.0, 0.2)(query, keys, sims, torch.zeros(1, 3, dtype=torch.long))
    a, b = math.exp(-0.5), math.exp(-1.0)
    torch.testing.assert_close(weights, torch.tensor([[0.8 * a / (a + b), 0.8 * b / (a + b), 0.0]]))
    torch.testing.assert_close(null, torch.tensor([0.2]))


def test_a_neighbour_added_twice_counts_twice() -> None:
    """Two equal neighbours of class 0 and one of class 1 at the same distance: ⅔ to ⅓ of what the prior leaves."""
    sims, labels = torch.full((1, 3), -1.0), torch.tensor([[0, 0, 1]])
    for head in (Uniform(3, 0.1), Distance(3, 0.5, 0.1), Attention(2, 0.5, 0.1)):
        keys = torch.tensor([[[1.0, 0.0]] * 3])
        probs = vote(*head(torch.zeros(1, 2), keys, sims, labels), labels, torch.full((3,), 1 / 3))
        torch.testing.assert_close(probs, torch.tensor([[0.6, 0.3, 0.0]]) + 0.1 / 3)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("missing", [False, True])
def test_untrained_attention_is_exactly_distance_weighting(metric: str, missing: bool) -> None:
    query, keys, sims, labels = neighbourhoods(missing=missing)
    if metric == "ip":
        sims = torch.where(torch.isfinite(sims), (keys @ query[:, :, None]).squeeze(2), sims)
    expected = Distance(keys.shape[1], 0.7, 0.1)(query, keys, sims, labels)
    actual = Attention(7, 0.7, 0.1, metric)(query, keys, sims, labels)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)


def test_trained_attention_by_loops() -> None:
    query, keys, sims, labels = neighbourhoods()
    head = trained()
    head.requires_grad_(False)
    w = torch.eye(7) + head.delta
    weights, null = head(query, keys, sims, labels)
    for b in range(len(query)):
        scores = [-float((w @ query[b] - w @ key).square().sum()) / math.exp(head.log_temperature) for key in keys[b]]
        mass = 1 / (
            1
            + math.exp(
                -float(head.null_bias) - float(head.null_slope) * max(scores) * math.exp(head.log_temperature) / 3
            )
        )
        total = sum(math.exp(s - max(scores)) for s in scores)
        assert float(null[b]) == pytest.approx(mass, abs=1e-6)
        expected = [(1 - mass) * math.exp(s - max(scores)) / total for s in scores]
        assert weights[b].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("head", HEADS, ids=["uniform", "distance", "untrained", "trained"])
def test_rows_sum_to_one_and_missing_neighbours_weigh_nothing(head) -> None:
    query, keys, sims, labels = neighbourhoods(b=13, missing=True)
    weights, null = head(query, keys, sims, labels)
    assert (weights >= 0).all()
    assert (weights[0, -2:] == 0).all()
    torch.testing.assert_close(weights.sum(1) + null, torch.ones(13), rtol=0, atol=1e-6)
    probs = vote(weights, null, labels, SHARES)
    torch.testing.assert_close(probs.sum(1), torch.ones(13), rtol=0, atol=1e-6)


@pytest.mark.parametrize("head", [HEADS[1], HEADS[3]], ids=["distance", "attention"])
def test_permuting_neighbours_permutes_weights(head) -> None:
    query, keys, sims, labels = neighbourhoods()
    if isinstance(head, Distance):
        head = Distance(keys.shape[1], head.temperature, head.prior)
    order = torch.randperm(keys.shape[1], generator=torch.Generator().manual_seed(0))
    weights, null = head(query, keys, sims, labels)
    moved, null_moved = head(query, keys[:, order], sims[:, order], labels[:, order])
    torch.testing.assert_close(moved, weights[:, order], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(null, null_moved)


@pytest.mark.parametrize("head", HEADS, ids=["uniform", "distance", "untrained", "trained"])
def test_fault_7_no_class_ever_gets_probability_zero(head) -> None:
    query, keys, sims, labels = neighbourhoods()
    probs = vote(*head(query, keys, sims, torch.zeros_like(labels)), torch.zeros_like(labels), SHARES)
    assert (probs > 0).all()


@given(st.permutations([0, 1, 2]), st.integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_renaming_classes_renames_probabilities(names: list[int], seed: int) -> None:
    query, keys, sims, labels = neighbourhoods(seed=seed)
    to = torch.tensor(names)
    weights, null = trained()(query, keys, sims, labels)
    renamed_shares = torch.empty(3)
    renamed_shares[to] = SHARES
    renamed = vote(weights, null, to[labels], renamed_shares)
    torch.testing.assert_close(renamed[:, to], vote(weights, null, labels, SHARES))


def test_gradients_against_finite_differences() -> None:
    query, keys, sims, labels = (t.double() if t.is_floating_point() else t for t in neighbourhoods(b=2, k=3, d=2))
    head = Attention(2, 0.7, 0.1).double()
    names = [name for name, _ in head.named_parameters()]

    def probs(*parameters: torch.Tensor) -> torch.Tensor:
        values = dict(zip(names, parameters, strict=True))
        weights, null = torch.func.functional_call(head, values, (query, keys, sims, labels))
        return vote(weights, null, labels, SHARES.double())

    start = tuple((p.detach() + 0.1).requires_grad_() for p in head.parameters())
    assert torch.autograd.gradcheck(probs, start)


def test_class_shares() -> None:
    torch.testing.assert_close(class_shares(np.array([0, 0, 2, 0]), 3), torch.tensor([0.75, 0.0, 0.25]))


def test_saved_and_loaded(tmp_path: Path) -> None:
    head = trained()
    head.save(tmp_path / "head")
    batch = neighbourhoods()
    for a, b in zip(head(*batch), Attention.load(tmp_path / "head")(*batch), strict=True):
        assert torch.equal(a, b)


def test_a_damaged_head_is_refused_in_one_line(tmp_path: Path) -> None:
    trained().save(tmp_path / "head")
    weights = tmp_path / "head/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    with pytest.raises(InputError, match="damaged or missing") as raised:
        Attention.load(tmp_path / "head")
    assert "\n" not in str(raised.value)
    trained(d=3).save(tmp_path / "head")
    config = tmp_path / "head/config.json"
    config.write_text(config.read_text().replace('"dim": 3', '"dim": 4'))
    with pytest.raises(InputError, match="do not fit"):
        Attention.load(tmp_path / "head")

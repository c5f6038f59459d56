"""Embeddings of numeric columns: which columns, and what they are by hand."""

import numpy as np
import pytest
import torch

from attnknn.encoder.numeric_embeddings import NumericEmbedding, fit_numeric, numeric_columns

SIZES = {"dim": 5, "frequencies": 3, "scale": 0.5, "bins": 4}
RNG = np.random.default_rng(0)
X = np.column_stack(
    [RNG.normal(size=40), RNG.integers(0, 2, 40), np.full(40, 3.0), RNG.integers(0, 3, 40), RNG.exponential(size=40)]
).astype(np.float32)


def module(kind, x=X):
    torch.manual_seed(0)
    return NumericEmbedding(x.shape[1], **fit_numeric(x, kind, **SIZES))


def test_columns_of_more_than_two_values_are_numeric():
    assert numeric_columns(X) == [0, 3, 4]
    assert fit_numeric(X[:, 1:3], "linear", **SIZES) == fit_numeric(X, "none", **SIZES) == {}


@pytest.mark.parametrize("kind", ["linear", "periodic", "piecewise"])
def test_the_other_columns_stay_and_each_numeric_one_has_its_own_embedding(kind):
    net = module(kind)
    x = torch.from_numpy(X[:7])
    out = net(x)
    assert out.shape == (7, net.out_dim) == (7, 3 * 5 + 2)
    torch.testing.assert_close(out[:, 15:], x[:, [1, 2]])
    moved = x.clone()
    moved[:, 3] += 0.25
    changed = (net(moved) != out).any(0).nonzero().flatten().tolist()
    assert changed
    assert set(changed) <= set(range(5, 10))


def test_periodic_by_hand():
    net = module("periodic")
    v, c = X[:7, 0], net.embed.periodic.weight.detach().numpy()[0]
    angle = 2 * np.pi * v[:, None] * c
    waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    w, b = (p.detach().numpy()[0] for p in (net.embed.linear.weight, net.embed.linear.bias))
    right = np.maximum(waves @ w + b, 0)
    np.testing.assert_allclose(net(torch.from_numpy(X[:7])).detach().numpy()[:, :5], right, atol=1e-5)


def test_piecewise_by_hand():
    x = np.column_stack([np.arange(9.0), np.arange(9.0)]).astype(np.float32)
    net = module("piecewise", x)
    assert fit_numeric(x, "piecewise", **SIZES)["edges"] == [[0, 2, 4, 6, 8]] * 2
    with torch.no_grad():
        net.embed.linear.weight.copy_(torch.randn_like(net.embed.linear.weight))
    w, b = net.embed.linear0.weight[0], net.embed.linear0.bias[0]
    through = torch.tensor([1.0, 1.0, 0.5, 0.0])  # 5 has come through two bins, and half of the third
    right = 5 * w + b + through @ net.embed.linear.weight[0]
    torch.testing.assert_close(net(torch.full((1, 2), 5.0))[0, :5], right)


def test_a_column_of_many_equal_values_has_bins_for_the_others():
    """Quantiles: 0, 0, 0, 0, 3; of the values 0 … 3 then those at 1/4, 1/2, 3/4."""
    x = np.zeros((100, 1), dtype=np.float32)
    x[:3, 0] = [1, 2, 3]
    assert fit_numeric(x, "piecewise", **SIZES)["edges"] == [[0, 0.75, 1.5, 2.25, 3]]
    assert torch.isfinite(module("piecewise", x)(torch.from_numpy(x))).all()

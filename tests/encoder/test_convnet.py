"""The image backbone: whitening, identity start, shapes."""

import pytest
import torch
from torch.nn import functional

from attnknn.encoder.convnet import ConvNet, Filters


def images(n: int = 40, shape: tuple[int, ...] = (3, 9, 13)) -> torch.Tensor:
    """Neighbouring pixels and channels alike, as in pictures."""
    torch.manual_seed(0)
    x = torch.randn(n, *shape)
    return x + 0.9 * x.roll(1, -1) + 0.5 * x.roll(1, 1)


def test_the_first_layer_whitens_patches() -> None:
    """Its first half responds to the data uncorrelated, with variance λ/(λ + ε); its second half is the negative."""
    net, x = ConvNet((3, 9, 13), [5], 2), images()
    net.whiten(x)
    assert "whitening" in dict(net.named_buffers()), "not trained"
    responses = functional.conv2d(x.double(), net.whitening.double()).transpose(0, 1).flatten(1)  # (24, M)
    half = responses[:12]
    torch.testing.assert_close(responses[12:], -half)
    second_moments = half @ half.T / half.shape[1]
    torch.testing.assert_close(second_moments, torch.diag(second_moments.diag()), atol=1e-4, rtol=0)
    assert second_moments.diag().min() > 0.95
    assert second_moments.diag().max() <= 1 + 1e-6
    net.whiten(torch.zeros(3, 3, 9, 13))
    assert torch.isfinite(net.whitening).all(), "of flat images too"


def test_filters_begin_as_the_identity_and_are_a_convolution() -> None:
    torch.manual_seed(0)
    layer, x = Filters(3, 7), torch.randn(2, 3, 5, 4)
    y = layer(x)
    torch.testing.assert_close(y[:, :3], x)
    torch.testing.assert_close(y, functional.conv2d(x, layer.weight.reshape(7, 3, 3, 3), padding=1))
    assert layer.weight.shape == (7, 27)


@pytest.mark.parametrize(("side", "last"), [(32, 3), (28, 3), (16, 1), (8, 1)])
def test_space_at_the_end(side: int, last: int) -> None:
    """32 → 31 → 15 → 7 → 3, and small images are not pooled to nothing."""
    net, seen = ConvNet((3, side, side), [5, 5, 5], 2), []
    net.groups.register_forward_hook(lambda *called: seen.append(called[-1].shape[-1]))
    assert net(torch.randn(2, 3, side, side)).shape == (2, 5)
    assert seen == [last]

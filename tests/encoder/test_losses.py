"""Each loss computed again from explicit pairs."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attnknn.encoder.losses import EncoderLoss, ViewsLoss

# Class 3 has one row only, class 2 none.
Y = torch.tensor([0, 1, 0, 3, 1, 0, 4])


def embeddings(b: int = 7, d: int = 11, seed: int = 0) -> Tensor:
    z = torch.randn(b, d, generator=torch.Generator().manual_seed(seed))
    return functional.normalize(z, dim=1).requires_grad_()


def logits(b: int = 7, c: int = 5) -> Tensor:
    return torch.randn(b, c, generator=torch.Generator().manual_seed(2)).requires_grad_()


def alone(term: str, n_classes: int = 5, dim: int = 11, **settings: float) -> EncoderLoss:
    return EncoderLoss(n_classes, dim, **{"cross_entropy": 0.0, term: 1.0} | settings)


def pair_supcon(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Mean over rows i with positives P(i) of −1/|P(i)| Σ_p log(exp(s_ip/τ) / Σ_{a≠i} exp(s_ia/τ)), s the cosine."""
    itself = torch.eye(len(y), dtype=torch.bool)
    scores = functional.cosine_similarity(z[:, None], z, dim=2) / temperature
    log_p = scores - scores.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    positive = (y[:, None] == y) & ~itself
    anchors = positive.any(1)
    return -((positive * log_p).sum(1)[anchors] / positive.sum(1)[anchors]).mean()


def pair_proxy_anchor(z: Tensor, y: Tensor, proxies: Tensor, margin: float, alpha: float) -> Tensor:
    """1/|P⁺| Σ_{p∈P⁺} log(1 + Σ_{x of p} e^{−α(s−δ)}) + 1/|P| Σ_p log(1 + Σ_{x not of p} e^{α(s+δ)}), s the cosine."""
    cosine = functional.cosine_similarity(z[:, None], proxies, dim=2)
    own = y[:, None] == torch.arange(len(proxies))
    positive = (own * torch.exp(-alpha * (cosine - margin))).sum(0).log1p()[own.any(0)]
    negative = (~own * torch.exp(alpha * (cosine + margin))).sum(0).log1p()
    return positive.mean() + negative.mean()


def pair_contrastive(z: Tensor, y: Tensor, margin: float) -> Tensor:
    """Mean of d² over pairs of one class plus mean of max(0, m − d)² over pairs of two."""
    z, (i, j) = functional.normalize(z), torch.combinations(torch.arange(len(y))).T
    d, same = (z[i] - z[j]).norm(dim=1), y[i] == y[j]
    return d[same].square().mean() + (margin - d[~same]).clamp(min=0).square().mean()


@pytest.mark.parametrize("margin", [0.5, 1.3, 1.9])
@pytest.mark.parametrize(("temperature", "alpha"), [(0.1, 32.0), (0.7, 5.0)])
def test_the_loss_is_the_weighted_sum_of_its_terms_from_pairs(temperature: float, alpha: float, margin: float) -> None:
    """Contrastive margins within reach of no negative pair, of some, and of all; rows 3 and 6 have no positive."""
    z, outputs = embeddings(), logits()
    settings = {"label_smoothing": 0.2, "supcon_temperature": temperature, "proxy_margin": 0.3, "proxy_alpha": alpha}
    loss = EncoderLoss(5, 11, 2.0, 0.3, 0.7, 0.4, contrastive_margin=margin, **settings)
    (proxies,) = loss.parameters()
    assert proxies.shape == (5, 11)
    target = 0.8 * torch.eye(5)[Y] + 0.2 / 5
    terms = [
        2.0 * -(target * outputs.log_softmax(1)).sum(1).mean(),
        0.3 * pair_supcon(z, Y, temperature),
        0.7 * pair_proxy_anchor(z, Y, proxies, 0.3, alpha),
        0.4 * pair_contrastive(z, Y, margin),
    ]
    value, expected = loss(z, outputs, Y), torch.stack(terms).sum()
    torch.testing.assert_close(value, expected)
    gradients = (torch.autograd.grad(v, (z, outputs, proxies)) for v in (value, expected))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("margin", [0.5, 1.3, 1.9])
def test_hardest_negatives_are_each_rows_nearest_of_another_class(margin: float) -> None:
    z = embeddings()
    value = alone("contrastive", 5, 11, contrastive_margin=margin, contrastive_negatives="hardest")(z, None, Y)
    unit = functional.normalize(z.detach())
    d, same = torch.cdist(unit, unit), Y[:, None] == Y
    nearest = d.masked_fill(same, torch.inf).amin(1)
    itself = torch.eye(len(Y), dtype=torch.bool)
    expected = d[same & ~itself].square().mean() + (margin - nearest).clamp(min=0).square().mean()
    torch.testing.assert_close(value.detach(), expected)


@pytest.mark.parametrize("y", [[0, 1, 2, 3, 4], [2, 2, 2, 2, 2]])
def test_fault_15_supcon_without_a_positive_or_negative_pair_is_zero_with_a_finite_gradient(y: list[int]) -> None:
    z = embeddings(5)
    value = alone("supcon")(z, None, torch.tensor(y))
    assert value.item() == 0
    value.backward()
    assert (z.grad == 0).all()


@pytest.mark.parametrize("negatives", ["all", "hardest"])
@pytest.mark.parametrize("y", [[0, 1, 2, 3, 4], [2, 2, 2, 2, 2], [0, 0, 1, 1, 1]])
@pytest.mark.parametrize("alike", [False, True])
def test_contrastive_without_pairs_or_distance_has_a_finite_gradient(y: list[int], alike: bool, negatives: str) -> None:
    """A mean over no pairs is 0; pairs at distance 0 have a gradient of 0 and not 0/0."""
    z = (torch.eye(5)[[0] * 5] if alike else torch.eye(5)).requires_grad_()
    loss = alone("contrastive", 5, 5, contrastive_margin=0.5, contrastive_negatives=negatives)
    value = loss(z, None, torch.tensor(y))
    value.backward()
    positive, negative = len(set(y)) < 5, len(set(y)) > 1
    assert value.item() == pytest.approx(0.25 * negative if alike else 2.0 * positive)
    assert z.grad.isfinite().all()


def test_terms_of_weight_zero_are_not_there() -> None:
    """No proxies to train, and a head that is not asked for gets no gradient."""
    assert list(EncoderLoss(5, 11, supcon=1.0).parameters()) == []
    outputs = logits()
    alone("supcon")(embeddings(), outputs, Y).backward()
    assert outputs.grad is None


def test_cross_entropy_without_a_linear_head_raises() -> None:
    with pytest.raises(ValueError, match="no linear head"):
        EncoderLoss(5, 11)(embeddings(), None, Y)


def test_bfloat16_inputs_are_summed_in_float32() -> None:
    loss = EncoderLoss(5, 11, 1.0, 1.0, 1.0, 1.0)
    z, outputs = embeddings().bfloat16(), logits().bfloat16()
    value = loss(z, outputs, Y)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(z.float(), outputs.float(), Y))


def test_views_of_an_image_are_each_others_positives() -> None:
    """NT-Xent: each of 2B views has one positive and 2B − 2 negatives; lengths do not count, nor what z is."""
    views, image = torch.randn(10, 11, generator=torch.Generator().manual_seed(3)), torch.arange(5).repeat(2)
    scores = functional.cosine_similarity(views[:, None], views, dim=2) / 0.3
    scores.fill_diagonal_(-torch.inf)
    expected = functional.cross_entropy(scores, (torch.arange(10) + 5) % 10)
    for scale in (1.0, 7.0):
        torch.testing.assert_close(ViewsLoss(0.3)(embeddings(10), scale * views, image), expected)

"""The kNN objective against loops over all bank rows; no row votes for itself, a mixture has its own neighbours."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnknn.core.errors import InputError
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.nn.objectives import soft_ece

N, B, K, D, C = 23, 7, 5, 11, 3
LABELS = np.random.default_rng(0).integers(C, size=N)
ROWS = torch.tensor([3, 0, 22, 11, 4, 5, 17])
PARTNERS = torch.tensor([0, 22, 11, 4, 5, 17, 3])


def unit(n: int, seed: int = 0) -> Tensor:
    z = torch.randn(n, D, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(z, dim=1)


def knn_loss(y: np.ndarray = LABELS, memory: Tensor | None = None, **changes: Any) -> NeighbourLoss:
    settings = {"knn": 1.0, "k": K, "temperature": 0.3, "prior": 0.05}
    loss = NeighbourLoss(y, C, D, **(settings | changes))
    loss.fill(unit(len(y), 1) if memory is None else memory)
    return loss


def slow_votes(z: Tensor, memory: Tensor, excluded: list[set[int]]) -> tuple[Tensor, Tensor]:
    """Probabilities of each row and its neighbours from differences in float64; τ = .3, ε = .05."""
    distance = (z[:, None] - memory).double().square().sum(2)
    for row, ids in zip(distance, excluded, strict=True):
        row[list(ids)] = torch.inf
    nearest = distance.topk(K, largest=False)
    labels = torch.eye(C, dtype=torch.float64)[LABELS]
    votes = (-nearest.values / 0.3).softmax(1)[:, :, None] * labels[nearest.indices]
    return 0.95 * votes.sum(1) + 0.05 * labels.mean(0), nearest.indices


def slow_nll(probs: Tensor, rows: Tensor, smoothing: float = 0.0) -> float:
    targets = (1 - smoothing) * torch.eye(C)[LABELS[rows]] + smoothing / C
    return -(targets * probs.log()).sum(1).mean().item()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_nll_of_the_votes_by_loops(smoothing: float) -> None:
    z, loss = unit(B), knn_loss(label_smoothing=smoothing)
    probs, ids = slow_votes(z, loss.memory, [{r} for r in ROWS.tolist()])
    assert torch.equal(loss.search(z, ROWS[:, None]), ids)
    assert loss(z, ROWS).item() == pytest.approx(slow_nll(probs, ROWS, smoothing), rel=1e-5)


def test_fault_11_a_mixture_has_its_own_neighbours_and_neither_of_its_rows_among_them() -> None:
    memory = unit(N, 1)
    z = torch.nn.functional.normalize(0.7 * memory[ROWS] + 0.3 * memory[PARTNERS], dim=1)
    loss = knn_loss(memory=memory)
    pairs = [set(pair) for pair in zip(ROWS.tolist(), PARTNERS.tolist(), strict=True)]
    probs, ids = slow_votes(z, memory, pairs)
    assert not any(pair & set(row) for pair, row in zip(pairs, ids.tolist(), strict=True))
    expected = 0.7 * slow_nll(probs, ROWS) + 0.3 * slow_nll(probs, PARTNERS)
    assert loss(z, ROWS, PARTNERS, 0.7).item() == pytest.approx(expected, rel=1e-5)
    unmixed, _ = slow_votes(memory[ROWS], memory, pairs)
    assert abs(expected - 0.7 * slow_nll(unmixed, ROWS) - 0.3 * slow_nll(unmixed, PARTNERS)) > 0.01


def test_entropy_is_rewarded_and_terms_add_up() -> None:
    z = unit(B)
    probs, _ = slow_votes(z, unit(N, 1), [{r} for r in ROWS.tolist()])
    error = soft_ece(probs, torch.from_numpy(LABELS)[ROWS], 15, 1000.0).item()
    assert knn_loss(knn=0.0, calibration=1.0)(z, ROWS).item() == pytest.approx(error, rel=1e-4)
    flat, sharp = (knn_loss(knn=0.0, entropy=1.0, temperature=t)(z, ROWS).item() for t in (1e4, 1e-3))
    assert flat == pytest.approx(-math.log(K), rel=1e-3), "the highest entropy of K weights"
    assert -0.1 < sharp <= 0
    parts = [knn_loss(**{"knn": 0.0, term: 1.0})(z, ROWS) for term in ("knn", "entropy", "calibration")]
    whole = knn_loss(knn=2.0, entropy=0.3, calibration=0.7)(z, ROWS)
    torch.testing.assert_close(whole, 2.0 * parts[0] + 0.3 * parts[1] + 0.7 * parts[2])


def test_a_query_whose_neighbours_disagree_counts_more() -> None:
    """Weights 1 + (h − 1)·share that disagrees."""
    z = unit(B)
    probs, ids = slow_votes(z, unit(N, 1), [{r} for r in ROWS.tolist()])
    y = LABELS[ROWS]
    weights = 1 + (LABELS[ids] != y[:, None]).mean(1)
    expected = np.average(-np.log(probs[range(B), y]), weights=weights)
    assert knn_loss(hard_weight=2.0)(z, ROWS).item() == pytest.approx(expected, rel=1e-5)
    assert expected > slow_nll(probs, ROWS)


def test_fault_1_exclusion_is_by_id_and_not_by_place_or_distance() -> None:
    """Every row is there twice: the twin stays, as the nearest, and the row itself is not found on either side."""
    once = unit(50)
    loss = knn_loss(np.arange(100) % C, once.repeat(2, 1), k=20)
    rows = torch.arange(100)
    ids = loss.search(once.repeat(2, 1), rows[:, None])
    assert (ids[:, 0] == (rows + 50) % 100).all()
    assert not (ids == rows[:, None]).any()


def test_the_memory_gets_no_gradient_and_the_temperature_does() -> None:
    loss, z = knn_loss(), unit(B).requires_grad_()
    by_temperature, by_row = torch.autograd.grad(loss(z, ROWS), (loss.log_temperature, z))
    assert [name for name, _ in loss.named_parameters()] == ["log_temperature"]
    assert by_temperature != 0
    assert not loss.memory.requires_grad
    assert (by_row != 0).any(1).all()


@pytest.mark.parametrize("mixed", [False, True])
def test_gradient_against_finite_differences(mixed: bool) -> None:
    terms = {"entropy": 0.3, "hard_weight": 2.0, "label_smoothing": 0.1, "calibration": 0.0 if mixed else 0.5}
    loss = knn_loss(**terms).double()
    partners = PARTNERS if mixed else None

    def value(z: Tensor, log_temperature: Tensor) -> Tensor:
        parameters = {"log_temperature": log_temperature}
        return torch.func.functional_call(loss, parameters, (z, ROWS, partners, 0.7))

    z, log_temperature = unit(B).double().requires_grad_(), torch.tensor(-0.5).double().requires_grad_()
    assert torch.autograd.gradcheck(value, (z, log_temperature))


@pytest.mark.parametrize("n", [K + 1, K])
def test_more_neighbours_than_rows_and_calibration_of_mixtures_are_refused(n: int) -> None:
    with pytest.raises(InputError, match=rf"^train_embedder\.knn\.k: {K} .* {n} bank rows .*at most {n - 2}$"):
        knn_loss(LABELS[:n])
    knn_loss(LABELS[: K + 2])
    with pytest.raises(ValueError, match="MixUp"):
        knn_loss(calibration=1.0)(unit(B), ROWS, PARTNERS, 0.7)


def test_candidates_and_the_batch_vote_and_a_row_never_for_itself() -> None:
    loss = knn_loss(candidates=0.4)
    rows, others = torch.tensor([3, 0, 5]), torch.tensor([1, 4])
    z = unit(5, seed=7).requires_grad_()
    value = loss(z[:3], rows, candidates=(others, z[3:]))
    ids, tau, prior = [3, 0, 5, 1, 4], loss.log_temperature.exp().item(), loss.prior
    w = np.exp(-(torch.cdist(z[:3], z).detach().numpy() ** 2) / tau) * (np.array(ids) != rows.numpy()[:, None])
    share = (w * (LABELS[ids] == LABELS[rows][:, None])).sum(1) / w.sum(1)
    expected = -np.log((1 - prior) * share + prior * loss.shares.numpy()[LABELS[rows]]).mean()
    assert value.item() == pytest.approx(expected, rel=1e-4)
    by_temperature, by_row = torch.autograd.grad(value, (loss.log_temperature, z))
    assert torch.isfinite(by_temperature)
    assert torch.isfinite(by_row).all()
    assert (by_row.abs().sum(1) > 0).all()


def test_candidates_are_drawn_anew_and_never_from_the_batch() -> None:
    y = np.arange(100) % 2
    loss = knn_loss(y, candidates=0.5)
    rows, generator = torch.arange(20), torch.Generator().manual_seed(0)
    samples: list[Any] = [loss.draw(rows, generator) for _ in range(50)]
    assert knn_loss(y).draw(rows, generator) is None
    assert all(not torch.isin(ids, rows).any() and len(ids.unique()) == len(ids) for ids in samples)
    assert 35 < np.mean([len(ids) for ids in samples]) < 45
    assert torch.cat(samples).unique().tolist() == list(range(20, 100))

"""Both kinds of learned heads: initialisation, TabR's forward pass, saving and loading."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnknn.core.errors import InputError
from attnknn.heads.attention import FEATURES
from attnknn.heads.baselines import Distance
from attnknn.heads.registry import LearnedHead, load_head, make_head, save_head
from attnknn.heads.tabr import TabR
from synthetic import neighbourhood

KINDS = ("attention", "tabr")
PARTS = dict.fromkeys(("self_attention", "label_bias", "prototypes", "move_prototypes"), True)
PARTS |= {"features": list(FEATURES), "dropout": 0.3}


def make(kind: str, parts: dict[str, Any] = PARTS, metric: str = "l2", trained: bool = False) -> LearnedHead:
    torch.manual_seed(0)
    start = {"dim": 7, "n_classes": 3, "temperature": 0.7, "prior": 0.1, "metric": metric}
    head = make_head(kind, parts, n_sizes=2, sim_scale=3.0, **start).eval()
    g = torch.Generator().manual_seed(1)
    if trained:
        with torch.no_grad():
            for p in head.parameters():
                p += 0.3 * torch.randn(p.shape, generator=g)
    return head


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_untrained_tabr_is_exactly_distance_weighting(metric: str) -> None:
    n = neighbourhood(missing=True, metric=metric)
    for a, e in zip(make("tabr", PARTS | {"value": True}, metric)(n), Distance(11, 0.7, 0.1)(n), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [False, True])
@torch.no_grad()
def test_tabr_by_hand(value: bool) -> None:
    n = neighbourhood(b=2, k=4)
    head = make("tabr", PARTS | {"value": value}, trained=True)
    w = torch.eye(7) + head.delta
    difference = (n.query[:, None] - n.keys) @ w.T
    alpha = (-difference.square().sum(2) / head.log_temperature.exp()).softmax(1)
    values = head.labels.weight[n.labels] + head.correct(difference)
    values = values + (n.keys @ head.value.weight.T if value else 0)
    context = n.query + (alpha[:, :, None] * values).sum(1)
    votes = (0.1 * n.shares).expand(2, -1).scatter_add(1, n.labels, 0.9 * alpha)
    probs, weights = head(n)
    torch.testing.assert_close(probs, (votes.log() + head.answer(context)).softmax(1), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weights, 0.9 * alpha, rtol=1e-4, atol=1e-6)


def test_label_embeddings_of_tabr_are_about_as_long_as_unit_queries() -> None:
    torch.manual_seed(0)
    lengths = TabR(128, 50, 0.7, 0.1).labels.weight.norm(dim=1)  # type: ignore[union-attr]
    assert (lengths - 1).abs().max() < 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_fault_7_no_class_gets_probability_zero_however_sure_the_head_is(kind: str) -> None:
    head = make(kind)
    bias = head.answer[-1].bias if kind == "tabr" else head.prototype_bias
    bias.data[0] = 200.0
    assert (head(neighbourhood())[0] > 0).all()


def test_tabr_drops_weights_in_training_only() -> None:
    head, n = make("tabr", {"dropout": 0.5}, trained=True), neighbourhood()
    torch.manual_seed(0)
    head.train()
    for part in (head.correct, head.answer):
        part.eval()
    assert not torch.equal(head(n)[0], head(n)[0])
    head.eval()
    assert torch.equal(head(n)[0], head(n)[0])


HISTORIC = {"similarity": "dot", "heads": 7, "temperature_bounds": [0.05, 20.0]}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        *(("attention", PARTS | {"class_correction": True, "similarity": name}) for name in ("l2", "dot")),
        ("attention", HISTORIC),
        ("attention", PARTS | {"hierarchical": True, "similarity": "l2", "refine_keys": True}),
        ("tabr", PARTS | {"value": True}),
    ],
)
def test_gradients_against_finite_differences(kind: str, parts: dict[str, Any]) -> None:
    head = make(kind, {**parts, "dropout": 0.0, "hidden": 2}, trained=True).double()
    n = neighbourhood(b=2, k=5, missing=True).to(torch.float64)
    names = [name for name, _ in head.named_parameters()]

    def answer(*parameters: torch.Tensor) -> Any:
        return torch.func.functional_call(head, dict(zip(names, parameters, strict=True)), (n,))

    if parts.get("hierarchical"):
        assert n.region is not None
        assert len(n.region[0].unique()) > 2, "with one region, and missing rows, the coarse level makes no difference"
    assert torch.autograd.gradcheck(answer, tuple(p.detach().requires_grad_() for p in head.parameters()))


@pytest.mark.parametrize(("kind", "parts"), [("attention", PARTS), ("attention", HISTORIC), ("tabr", PARTS)])
def test_saved_and_loaded(tmp_path: Path, kind: str, parts: dict[str, Any]) -> None:
    head, n = make(kind, parts, trained=True), neighbourhood(missing=True)
    save_head(head, tmp_path / "head")
    for a, b in zip(head(n), load_head(tmp_path / "head")(n), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_head_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    save_head(make(kind), tmp_path / "head")
    config, weights = tmp_path / "head/config.json", tmp_path / "head/weights.safetensors"
    config.write_text(config.read_text().replace('"dim": 7', '"dim": 4'))
    with pytest.raises(InputError, match="do not fit") as raised:
        load_head(tmp_path / "head")
    assert "\n" not in str(raised.value)
    weights.write_bytes(weights.read_bytes()[:-5])
    with pytest.raises(InputError, match="damaged or missing"):
        load_head(tmp_path / "head")


@pytest.mark.parametrize("part", ["key", "label_embedding", "correction"])
def test_a_part_that_is_off_has_no_gradient_and_no_effect(part: str) -> None:
    torch.manual_seed(0)
    whole = TabR(5, 3, 0.5, 0.1, hidden=4)
    less = TabR(5, 3, 0.5, 0.1, hidden=4, **{part: False})
    assert less.config[part] is False
    for head in (whole, less):
        torch.nn.init.normal_(head.answer[-1].weight)
    n = neighbourhood(b=7, k=6, d=5)
    less(n)[0][:, 0].sum().backward()
    learns = {name.partition(".")[0] for name, p in less.named_parameters() if p.requires_grad and p.grad is not None}
    of_part = {"key": "delta", "label_embedding": "labels", "correction": "correct"}[part]
    assert learns == {"delta", "log_temperature", "labels", "correct", "answer"} - {of_part}
    shared = {name: value for name, value in whole.state_dict().items() if name in less.state_dict()}
    less.load_state_dict(shared)
    if part != "key":  # W is I at the start, learned or not
        assert not torch.allclose(whole(n)[0], less(n)[0])

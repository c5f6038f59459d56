"""Weights and votes that can be checked by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from attnknn.core.errors import InputError
from attnknn.heads.attention import FEATURES, Attention, label_shares
from attnknn.heads.baselines import Distance, Uniform
from attnknn.neighbours.space import NEEDS, NeighbourBatch
from synthetic import neighbourhood

D, C, S = 7, 3, 2
ALL = list(FEATURES)
# Every part alone, and all at once with either similarity.
PARTS: dict[str, dict[str, Any]] = {
    "nothing": {"learned_prior": False},
    "learned_prior": {},
    "moved prototypes": {"prototypes": True, "move_prototypes": True},
    **{name: {"similarity": name} for name in ("l2", "dot")},
    **{name: {name: True} for name in ("label_bias", "prototypes", "hierarchical", "class_correction")},
    **{name: {"features": [name]} for name in FEATURES},
    "self_attention": {"features": ALL, "self_attention": True},
    **{f"refine_keys, {name}": {"similarity": name, "refine_keys": True} for name in ("l2", "dot")},
}
SWITCHES = ("label_bias", "prototypes", "move_prototypes", "hierarchical", "class_correction")
EVERYTHING: dict[str, Any] = dict.fromkeys(SWITCHES, True)
EVERYTHING |= {"features": ALL, "self_attention": True, "dropout": 0.3}
HISTORIC = {"similarity": "dot", "heads": 7, "temperature_bounds": [0.05, 20.0]}
PARTS |= {"all, bank": EVERYTHING, "all, l2": EVERYTHING | {"similarity": "l2"}, "historic": HISTORIC}
PARTS["bounded"] = EVERYTHING | {"similarity": "dot", "temperature_bounds": [0.05, 20.0]}
starts_as_distance = pytest.mark.parametrize("parts", PARTS.values(), ids=[*PARTS])
PARTS = PARTS | {"linear": {"linear": True}, "all, linear": EVERYTHING | {"linear": True}}
every_part = pytest.mark.parametrize("parts", PARTS.values(), ids=[*PARTS])


def untrained(parts: dict[str, Any], temperature: float = 0.7, prior: float = 0.1, metric: str = "l2") -> Attention:
    torch.manual_seed(0)
    return Attention(D, C, S, temperature, prior, metric, sim_scale=3.0, **parts).eval()


def trained(parts: dict[str, Any], metric: str = "l2") -> Attention:
    head = untrained(parts, 1.7, 0.05, metric)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in filter(lambda p: p.requires_grad, head.parameters()):
            p += 0.3 * torch.randn(p.shape, generator=g)
    return head


def test_distance_by_hand() -> None:
    """exp(−1/2), exp(−2/2) over their sum, times .8; the third is cut off by k = 2; .2 goes by the class shares."""
    sims, labels, shares = torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[0, 0, 1]]), torch.tensor([0.5, 0.5])
    probs, weights = Distance(2, 2.0, 0.2)(NeighbourBatch(sims, labels, shares, torch.zeros(2, 2), torch.zeros(1, 2)))
    a, b = math.exp(-0.5), math.exp(-1.0)
    torch.testing.assert_close(weights, torch.tensor([[0.8 * a / (a + b), 0.8 * b / (a + b), 0.0]]))
    torch.testing.assert_close(probs, torch.tensor([[0.9, 0.1]]))


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("missing", [False, True])
@starts_as_distance
def test_untrained_attention_is_exactly_distance_weighting(parts: dict[str, Any], metric: str, missing: bool) -> None:
    n = neighbourhood(missing=missing, metric=metric)
    expected = Distance(n.labels.shape[1], 0.7, 0.1)(n)
    for a, e in zip(untrained(parts, metric=metric)(n), expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)


@every_part
def test_a_head_reads_exactly_its_needs(parts: dict[str, Any]) -> None:
    head, n = trained(parts), neighbourhood()
    only = replace(n, **{name: None for name in NEEDS if name not in head.needs})
    for a, e in zip(head(only), head(n), strict=True):
        torch.testing.assert_close(a, e, rtol=0, atol=0)
    for name in head.needs:
        with pytest.raises(AssertionError, match=f"{name} was not gathered"):
            head(replace(n, **{name: None}))


@every_part
def test_rows_sum_to_one_and_missing_neighbours_weigh_nothing(parts: dict[str, Any]) -> None:
    n = neighbourhood(b=13, missing=True)
    for head in (trained(parts), trained(parts).train()):
        probs, weights = head(n)
        assert (weights >= 0).all()
        assert (weights[0, -2:] == 0).all()
        assert (probs > 0).all(), "fault 7: no class ever gets probability 0"
        torch.testing.assert_close(probs.sum(1), torch.ones(13), rtol=0, atol=1e-6)
        votes = torch.zeros(13, C).scatter_add(1, n.labels.clamp(min=0), weights)
        assert (probs - votes > -1e-6).all(), "the null neighbours hold what is left, of each class"


@torch.no_grad()
def test_neighbours_correct_the_linear_head_by_hand() -> None:
    """p_c ∝ exp(g·ℓ_c + d_c)·(.9 + .1·v_c/share_c), with v the votes of distance weighting."""
    n = neighbourhood()
    head = untrained({"linear": True}, prior=0.9)
    head.linear_gain.fill_(1.3)  # type: ignore[union-attr]
    head.linear_bias.copy_(torch.tensor([0.2, -0.1, 0.0]))  # type: ignore[union-attr]
    votes = torch.zeros(5, C).scatter_add(1, n.labels, (n.sims / 0.7).softmax(1))
    linear = (1.3 * n.logits + torch.tensor([0.2, -0.1, 0.0])).exp()  # type: ignore[operator]
    expected = linear * (0.9 + 0.1 * votes / n.shares)
    torch.testing.assert_close(head(n)[0], expected / expected.sum(1, keepdim=True))
    alone = untrained({"linear": True, "neighbours": False})
    torch.testing.assert_close(alone(n)[0], n.logits.softmax(1))  # type: ignore[union-attr]


@pytest.mark.parametrize("head", [Uniform(3, 0.1), Distance(5, 0.7, 0.1)], ids=["uniform", "distance"])
def test_rows_of_the_baselines(head: Any) -> None:
    probs, weights = head(neighbourhood(b=13, missing=True))
    assert (probs > 0).all()
    assert (weights[0, -2:] == 0).all()
    for values, mass in ((probs, 1.0), (weights, 0.9)):
        torch.testing.assert_close(values.sum(1), torch.full((13,), mass), rtol=0, atol=1e-6)


@torch.no_grad()
def test_the_whole_head_by_hand() -> None:
    """Every part but the self-attention, from the formulas, a query at a time in float64."""
    batch = neighbourhood(b=3, k=4)
    head = trained({**EVERYTHING, "self_attention": False, "similarity": "l2"})
    n, p = batch.to(torch.float64), {name: value.double() for name, value in head.state_dict().items()}
    tau, scale, w = 1.7 * p["log_temperature_offset"].exp(), 3.0, torch.eye(D) + p["delta"]
    log_prior, moved = n.shares.log(), n.prototypes + p["prototype_move"]
    probs, weights = head(batch)
    for b, (q, sims, labels) in enumerate(zip(n.query, n.sims, n.labels, strict=True)):
        learned = -((w @ q)[:, None] - w @ n.keys[b].T).square().sum(0) / tau
        by_class = p["label_bias"] + 30 * p["prototype_gain"] * moved @ q + p["prototype_bias"]
        share = torch.tensor([(labels == c).double().mean() for c in labels])
        columns = [sims / scale, (sims - sims[0]) / scale, torch.arange(1, 5).log() / math.log(4), share.log()]
        columns += [*n.agreement[b].T, n.density[b] / scale, (log_prior - log_prior.mean())[labels]]
        own = n.prototypes[labels]
        columns.append((n.keys[b] * own).sum(1) / n.keys[b].norm(dim=1) / own.norm(dim=1))
        units = torch.nn.functional.gelu(torch.stack(columns, 1) @ p["fc1.weight"].T + p["fc1.bias"])
        bias = by_class[labels] + p["label_scale"][labels] * share.log() - p["correction"] * log_prior[labels]
        masses = torch.stack([learned[n.region[b] == region].logsumexp(0) for region in n.region[b]])
        coarse = p["region_gain"] * n.region_sims[b] / tau + (p["region_mass"] - 1) * masses
        logits = learned + coarse + bias + units @ p["fc2.weight"][0] + p["fc2.bias"]
        prior = p["null_bias"] + p["null_slope"] * sims[0] / scale + log_prior
        nulls = (learned + coarse).logsumexp(0) + prior + by_class
        expected, votes = torch.cat([logits, nulls]).softmax(0).split([4, C])
        assert weights[b].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
        assert probs[b].tolist() == pytest.approx(votes.index_add(0, labels, expected).tolist(), abs=1e-5)


@torch.no_grad()
def test_several_heads_by_hand() -> None:
    """The historic form: query-key products per head, each with its own bounded temperature; the mean over heads."""
    n = neighbourhood(b=2, k=3)
    head = trained(HISTORIC)
    taus = head.temperatures()
    assert all(0.05 * 1.7 < tau < 20 * 1.7 for tau in taus)
    assert len(set(taus.tolist())) == 7
    expected = torch.zeros(2, 3)
    for a, b, tau in zip(head.query_projection, head.key_projection, taus, strict=True):
        scores = (n.sims + ((n.keys @ b.T) * (n.query @ a.T)[:, None]).sum(2)) / tau
        nearest = head.null_bias + head.null_slope * n.sims[:, :1] / 3
        nulls = scores.logsumexp(1, keepdim=True) + nearest + n.shares.log()
        expected += torch.cat([scores, nulls], 1).softmax(1)[:, :3] / 7
    torch.testing.assert_close(head(n)[1], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("parts", [PARTS["all, bank"], PARTS["all, l2"], PARTS["bounded"]], ids=["bank", "l2", "dot"])
def test_permuting_neighbours_permutes_weights(parts: dict[str, Any]) -> None:
    head, n = trained({**parts, "features": list(ALL)}), neighbourhood()
    order = torch.randperm(n.labels.shape[1], generator=torch.Generator().manual_seed(0))
    fields = ("keys", "sims", "labels", "agreement", "density", "region", "region_sims")
    reordered = replace(n, **{name: getattr(n, name)[:, order] for name in fields})
    (probs, weights), (again, moved) = head(n), head(reordered)
    torch.testing.assert_close(moved, weights[:, order], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(again, probs, rtol=1e-4, atol=1e-6)


def test_refined_keys_by_hand() -> None:
    """Each key moves towards the keys that its projection attends to, before ‖q − k‖² is taken."""
    n = neighbourhood(missing=True)
    parts = {"similarity": "l2", "refine_keys": True}
    head = trained(parts)
    assert n.query is not None
    assert n.keys is not None
    with torch.no_grad():
        for b in range(len(n.labels)):
            present = torch.isfinite(n.sims[b])
            keys = n.keys[b, present]
            q, k, v = (keys @ w.T for w in head.refine.weight.chunk(3))
            keys = keys + head.refine_residual * ((q @ k.T / math.sqrt(D)).softmax(1) @ v)
            difference = n.query[b] - keys
            expected = -(difference + difference @ head.delta.T).square().sum(1)
            torch.testing.assert_close(head.similarities(n)[b, 0, present], expected)


def test_the_similarity_of_a_neighbour_to_its_own_class_by_hand() -> None:
    n = neighbourhood()
    head = untrained({"features": ["class_similarity"]})
    feature = head.precompute(n).features
    assert feature is not None
    assert n.keys is not None
    for b, i in ((0, 0), (1, 3), (2, 5)):
        key, mean = n.keys[b, i], n.prototypes[n.labels[b, i]]
        torch.testing.assert_close(feature[b, i, 0], key @ mean / key.norm() / mean.norm())


def test_hierarchical_attention_by_hand() -> None:
    """A region's weight depends on its centroid and mass; within a region weights are those of flat attention."""
    n = neighbourhood(missing=True)
    parts = {"hierarchical": True, "learned_prior": False}
    head, flat = trained(parts), untrained({"learned_prior": False}, 1.7, 0.05)
    flat.load_state_dict({name: value for name, value in head.state_dict().items() if "region" not in name})
    assert n.region is not None
    assert n.region_sims is not None
    weights, flat_weights = head(n)[1], flat(n)[1]
    gain, mass, temperature = head.region_gain, head.region_mass, head.temperatures()[0]
    assert gain is not None
    assert mass is not None
    for b in range(len(n.labels)):
        regions = sorted({int(r) for r in n.region[b] if r >= 0})
        coarse = []
        for region in regions:
            own = n.region[b] == region
            assert own.any()
            within = (n.sims[b, own] / temperature).softmax(0)
            torch.testing.assert_close(weights[b, own] / weights[b, own].sum(), within)
            torch.testing.assert_close(flat_weights[b, own] / flat_weights[b, own].sum(), within)
            total = (n.sims[b, own] / temperature).exp().sum()
            coarse.append((gain * n.region_sims[b, own][0] / temperature).exp() * total**mass)
        shares = torch.stack([weights[b, n.region[b] == region].sum() for region in regions])
        torch.testing.assert_close(shares / shares.sum(), torch.stack(coarse) / sum(coarse))


def test_without_its_neighbours_it_is_a_linear_classifier() -> None:
    """p_c ∝ share_c · exp(30·g·q·P_c + d_c), whatever the neighbours are."""
    head = trained({"prototypes": True, "move_prototypes": True, "neighbours": False})
    n = neighbourhood()
    logits = n.shares.log() + 30 * head.prototype_gain * n.query @ (n.prototypes + head.prototype_move).T
    logits = logits + head.prototype_bias
    probs, weights = head(n)
    torch.testing.assert_close(probs, logits.softmax(1), rtol=1e-4, atol=1e-6)
    assert (weights == 0).all()


@pytest.mark.parametrize(("k", "share", "dropped"), [(11, 0.5, 0.5), (2, 0.9, 0.09), (1, 0.9, 0.0)])
def test_dropout_leaves_neighbours_out_in_training_only_and_never_all(k: int, share: float, dropped: float) -> None:
    torch.manual_seed(0)
    head, n = untrained({"dropout": share}, prior=0.1).train(), neighbourhood(b=200, k=k)
    probs, weights = head(n)
    assert float((weights == 0).float().mean()) == pytest.approx(dropped, abs=0.05)
    torch.testing.assert_close(weights.sum(1), torch.full((200,), 0.9))
    torch.testing.assert_close(probs.sum(1), torch.ones(200))
    assert (head.eval()(n)[1] > 0).all()


@every_part
def test_precomputed_inputs_change_nothing_for_any_rows(parts: dict[str, Any]) -> None:
    head, n, idx = trained(parts), neighbourhood(b=5, missing=True), torch.tensor([3, 0, 4])
    for a, e in zip(head(head.precompute(n).take(idx)), head(n.take(idx)), strict=True):
        torch.testing.assert_close(a, e, rtol=0, atol=0)


def test_label_shares_by_hand() -> None:
    """Two of three present neighbours are of class 1; the missing one does not count."""
    share = label_shares(torch.tensor([[1, 0, 1, -1]]), 3)
    torch.testing.assert_close(share, torch.tensor([[2 / 3, 1 / 3, 2 / 3, 1.0]]))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"features": ["colour"]}, "features: colour unknown"),
        ({"similarity": "cosine"}, "similarity: cosine unknown"),
        ({"heads": 4}, "heads: 4 need similarity dot"),
        ({"self_attention": True}, "needs features"),
        ({"refine_keys": True}, "needs similarity l2 or dot"),
    ],
)
def test_parts_that_do_not_go_together(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        untrained(parts)

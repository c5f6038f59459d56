"""Training of heads: on fit rows, stopped by val rows, independent of test rows."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Neighbours
from attnknn.core.errors import InputError
from attnknn.evaluation import opponents
from attnknn.experiments.corruption import noisy_labels
from attnknn.heads.baselines import Distance, tune_distance
from attnknn.heads.classify import classify
from attnknn.heads.fit import FORMS, fit_forms, fit_head, kept_start
from attnknn.heads.registry import LearnedHead
from attnknn.neighbours.space import NEEDS, EmbeddingSpace, part_neighbours
from attnknn.nn.objectives import entropy, hardness, nll, soft_ece
from synthetic import FITTING, blobs, embedded, part_nll, relabelled, retrieved

SETTINGS: dict[str, Any] = FITTING | {
    "k_train": 20,
    "parts": {"features": ["agreement", "label_share"], "prototypes": True, "dropout": 0.1},
    "epochs": 15,
    "batch_size": 32,
    "patience": 15,
    "temperatures": [0.05, 0.2, 0.5, 1.0],
    "priors": [0.001, 0.03, 0.1],
    "seed": 3,
}
Fitted = tuple[LearnedHead, list[dict[str, float]]]


@pytest.fixture(scope="module")
def data() -> EmbeddingSpace:
    """A memory with wrong labels, so that there is something to learn beyond distance."""
    return wrongly_labelled(0)


def wrongly_labelled(seed: int) -> EmbeddingSpace:
    embeddings = embedded(blobs(480, noise=0.8, seed=seed))
    y, bank = np.array(embeddings.y), embeddings.rows(BANK)
    y[bank] = noisy_labels(y[bank], 0.4, 3, "symmetric", np.random.default_rng(seed))
    return retrieved(dataclasses.replace(embeddings, y=y))


def fit(data: EmbeddingSpace, *folds: EmbeddingSpace, **changes: Any) -> Fitted:
    return fit_head([data, *folds], **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def fitted(data: EmbeddingSpace) -> Fitted:
    return fit(data)


def bytes_of(head: LearnedHead) -> bytes:
    return b"".join(t.numpy().tobytes() for t in head.state_dict().values())


def test_it_starts_at_the_best_distance_weighting_of_k_train(data: EmbeddingSpace) -> None:
    y = data.embeddings.y[data.embeddings.rows(VAL)]
    batch = part_neighbours([data], VAL, 20)
    tuned = tune_distance(*batch, y, data.shares, [20], SETTINGS["temperatures"], SETTINGS["priors"])
    expected = part_nll(Distance(**tuned), [data], VAL, 20)
    assert fit(data, epochs=0)[1][0]["val_nll"] == pytest.approx(expected, abs=1e-5)
    sims = 1 + data.neighbours.sims / 2  # of unit vectors
    products = dataclasses.replace(data, neighbours=dataclasses.replace(data.neighbours, sims=sims, metric="ip"))
    for parts in (SETTINGS["parts"], {"similarity": "l2"}):
        assert fit(products, epochs=0, parts=parts)[1][0]["val_nll"] == pytest.approx(expected, abs=1e-4)


def test_it_learns_and_keeps_the_epoch_of_lowest_validation_nll(data: EmbeddingSpace, fitted: Fitted) -> None:
    head, history = fitted
    assert history[-1]["fit_loss"] < history[0]["fit_loss"] - 0.02
    best = min(row["val_nll"] for row in history)
    assert part_nll(head, [data], VAL, 20) == pytest.approx(best, abs=1e-5)
    assert best < history[0]["val_nll"]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("attention", {"similarity": "l2"}),
        ("attention", {"similarity": "dot", "heads": 7, "temperature_bounds": [0.05, 20.0]}),
        ("attention", {"features": ["agreement", "distance"], "self_attention": True, "label_bias": True}),
        ("attention", {"prototypes": True, "move_prototypes": True, "class_correction": True}),
        ("tabr", {"hidden": 32}),
    ],
    ids=["l2", "historic", "features", "prototypes", "tabr"],
)
def test_it_overfits_32_rows(data: EmbeddingSpace, kind: str, parts: dict[str, Any]) -> None:
    rows = data.embeddings.rows(FIT)
    part = np.array(data.embeddings.part)
    part[rows[32:]] = TEST
    small = dataclasses.replace(data, embeddings=dataclasses.replace(data.embeddings, part=part))
    _, history = fit(small, kind=kind, parts=parts, epochs=60, patience=60, lr=0.06, weight_decay=0.0)
    assert history[-1]["fit_loss"] < 0.5 * history[0]["fit_loss"]


def test_faults_3_and_4_seed_and_fit_rows_decide_and_test_rows_do_not(data: EmbeddingSpace, fitted: Fitted) -> None:
    """Other labels of the fit rows give another head; bank and test rows are never its queries."""
    expected = bytes_of(fitted[0])
    assert bytes_of(fit(data, seed=4)[0]) != expected
    assert bytes_of(fit(relabelled(data, FIT))[0]) != expected
    assert bytes_of(fit(relabelled(data, TEST))[0]) == expected
    searched = np.flatnonzero(np.isin(data.embeddings.part, (FIT, VAL))).astype(np.int32)
    only = Neighbours(searched, *data.neighbours.take(searched, 20), "l2")
    assert bytes_of(fit(dataclasses.replace(data, neighbours=only))[0]) == expected


def test_learned_similarities_train_in_many_dimensions() -> None:
    """Two informative dimensions among 256 of noise: a projection finds them, added to a head or alone."""
    embeddings = embedded(blobs(900, noise=0.3))
    noise = np.random.default_rng(0).normal(size=(900, 256), scale=0.3)
    z = np.concatenate([embeddings.z, noise], axis=1)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    data = retrieved(dataclasses.replace(embeddings, z=z.astype(np.float32)))
    settings = {"lr": 0.01, "epochs": 60, "batch_size": 64, "patience": 10}
    plain, l2, both = (
        fit(data, **settings, parts=parts)[1]
        for parts in ({}, {"similarity": "l2"}, {"similarity": "l2", "features": ["agreement", "label_share"]})
    )
    start = plain[0]["val_nll"]
    assert min(row["val_nll"] for row in l2) < 0.9 * start
    assert min(row["val_nll"] for row in both) < 0.1 * start
    assert not kept_start(both)


def test_a_head_with_a_projection_starts_as_the_head_without(data: EmbeddingSpace) -> None:
    parts = {**SETTINGS["parts"], "similarity": "dot", "heads": 7}
    (_, plain), (_, extended) = (fit(data, parts=p, patience=3) for p in (SETTINGS["parts"], parts))
    assert extended[: len(plain)] == plain
    assert {row["phase"] for row in extended[len(plain) :]} == {1}
    head, unmoved = fit(data, parts=parts, lr=1e-12)
    assert kept_start(unmoved)
    assert not head.state_dict()["key_projection"].any()


def test_forms_of_attention(data: EmbeddingSpace) -> None:
    """Neighbours alone, with class means, and with the linear head."""
    settings = {**SETTINGS, "parts": {"features": ["agreement"]}, "epochs": 5}
    forms = fit_forms([data], **settings)
    assert tuple(forms) == tuple(FORMS) == opponents.FORMS
    assert [head.config["prototypes"] for head, _ in forms.values()] == [False, True, False]
    assert tuple(fit_forms([data], **settings | {"kind": "tabr", "parts": {}, "epochs": 0})) == ("attention",)
    tabr = [fit_head([data], **settings | {"kind": "tabr", "parts": p, "epochs": 1}) for p in ({}, {"linear": True})]
    assert tabr[0][1] == tabr[1][1], "of attention alone"
    bare = dataclasses.replace(data, embeddings=dataclasses.replace(data.embeddings, logits=None))
    assert tuple(fit_forms([bare], **settings | {"epochs": 0})) == ("attention", "attention-means")
    with pytest.raises(InputError, match=r"parts\.linear: the encoder has no linear head"):
        fit(bare, parts={"linear": True})


def test_with_a_linear_head_it_is_never_worse_on_val_rows_than_that_head_scaled() -> None:
    """Logits that are twice too large; and neighbours without information, which are left without weight."""
    e = embedded(blobs(480, noise=0.8))
    logits = np.asarray(e.logits, dtype=float)
    rows, y, bank = e.rows(VAL), e.y[e.rows(VAL)], e.rows(BANK)
    true = [log_softmax(logits[rows] / t, axis=1)[np.arange(len(rows)), y] for t in np.geomspace(0.5, 4, 50)]
    shuffled = np.array(e.y)
    shuffled[bank] = np.random.default_rng(0).permutation(shuffled[bank])
    moved = []
    for labels in (e.y, shuffled):
        space = retrieved(dataclasses.replace(e, logits=logits.astype(np.float32), y=labels))
        head, history = fit(space, parts={"linear": True})
        assert history[0]["val_nll"] < min(-nll.mean() for nll in true) + 0.02
        assert part_nll(head, [space], VAL, 20) <= history[0]["val_nll"] + 1e-5
        gain, bias = head.linear_gain.item(), head.linear_bias.detach().numpy()  # type: ignore[union-attr]
        alone = softmax(logits[rows] * gain + bias, 1)
        moved.append(np.abs(classify(head, space, rows, 20) - alone).mean())
    assert moved[1] < 0.003 < moved[0]


def test_it_is_given_no_more_neighbours_than_it_was_fitted_with(data: EmbeddingSpace) -> None:
    head, _ = fit(data, k_train=7, epochs=0)
    rows = data.embeddings.rows(TEST)
    np.testing.assert_array_equal(classify(head, data, rows, 20), classify(head, data, rows, 7))
    head.k = 0
    assert not np.array_equal(classify(head, data, rows, 20), classify(head, data, rows, 7))


def test_patience_stops_it(data: EmbeddingSpace) -> None:
    _, history = fit(data, lr=0.3, epochs=100, patience=3)
    best = min(history, key=lambda row: row["val_nll"])
    assert history[-1]["epoch"] == best["epoch"] + 3 < 100


def test_training_stops_when_the_nll_of_separable_classes_falls_by_almost_nothing() -> None:
    separable = retrieved(embedded(blobs(480, noise=0.05)))
    _, history = fit(separable, epochs=100, patience=3)
    assert history[0]["val_nll"] < 0.01
    assert history[-1]["val_nll"] < history[1]["val_nll"]
    assert len(history) < 20


def test_the_unit_of_the_embeddings_does_not_matter(data: EmbeddingSpace) -> None:
    parts = {"features": ["distance", "gap", "density"]}
    doubled = retrieved(dataclasses.replace(data.embeddings, z=2 * data.embeddings.z))
    (_, history), (_, again) = fit(data, parts=parts), fit(doubled, parts=parts)
    assert [row["val_nll"] for row in again] == pytest.approx([row["val_nll"] for row in history], abs=1e-4)


def test_the_loss_is_that_of_given_labels_through_the_matrix(data: EmbeddingSpace) -> None:
    """In training and on val rows, with a learning rate that changes nothing."""
    t = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1)
    head, history = fit(data, transition=t, epochs=1, lr=1e-12, parts={"features": ["agreement"]})
    for part, name in ((FIT, "fit_loss"), (VAL, "val_nll")):
        rows = data.embeddings.rows(part)
        probs = classify(head, data, rows, 20, "cpu") @ t
        expected = -np.log(probs[np.arange(len(rows)), data.embeddings.y[rows]]).mean()
        assert history[0][name] == pytest.approx(expected, rel=1e-4)


def test_dropout_is_on_while_it_learns(data: EmbeddingSpace) -> None:
    plain = {"features": ["agreement"]}
    assert bytes_of(fit(data, parts={**plain, "dropout": 0.5})[0]) != bytes_of(fit(data, parts=plain)[0])


def test_weight_decay_is_of_matrices_alone(data: EmbeddingSpace) -> None:
    """A decay so strong that a step leaves next to nothing of what it is applied to."""
    kind = {"parts": {"features": ["agreement"], "prototypes": True}, "epochs": 8, "patience": 8, "weight_decay": 90.0}
    strong, none = fit(data, **kind)[0].state_dict(), fit(data, **{**kind, "weight_decay": 0.0})[0].state_dict()
    assert strong["fc1.weight"].norm() < 0.2 * none["fc1.weight"].norm()
    for name in ("log_temperature_offset", "fc1.bias", "null_bias", "prototype_gain"):
        assert strong[name].norm() > 0.5 * none[name].norm(), name


def test_each_objective_moves_what_it_is_about(data: EmbeddingSpace) -> None:
    """Entropy spreads the weights, the calibration term lowers the calibration error, smoothing the confidence."""
    rows = data.embeddings.rows(FIT)
    batch, y = data.around(rows, 20, NEEDS), torch.from_numpy(data.embeddings.y[rows])

    def answers(**change: Any) -> tuple[torch.Tensor, torch.Tensor]:
        head = fit(data, **change, epochs=40, patience=40, parts={**SETTINGS["parts"], "dropout": 0.0})[0]
        with torch.no_grad():
            return head(batch)

    whole, _ = answers(batch_size=500)
    (probs, weights), (_, spread) = answers(), answers(entropy_weight=0.5)
    assert float(entropy(spread)) > float(entropy(weights))
    (calibrated, _), (smooth, _) = answers(calibration_weight=5.0, batch_size=500), answers(label_smoothing=0.3)
    assert float(soft_ece(calibrated, y)) < float(soft_ece(whole, y))
    assert float(smooth.amax(1).mean()) < float(probs.amax(1).mean())


def test_a_weight_on_hard_queries_serves_them() -> None:
    data = wrongly_labelled(1)
    rows = data.embeddings.rows(FIT)
    batch, y = data.around(rows, 20, NEEDS), torch.from_numpy(data.embeddings.y[rows])
    hard = hardness(batch.labels, y)
    hardest = hard > hard.quantile(0.7)

    def nll_of_the_hardest(weight: float) -> float:
        head = fit(data, hard_weight=weight, epochs=40, patience=40, lr=0.02)[0]
        with torch.no_grad():
            return float(nll(head(batch)[0][hardest], y[hardest]))

    assert nll_of_the_hardest(10.0) < nll_of_the_hardest(1.0) - 0.05


def test_several_spaces_are_fitted_and_validated_together(data: EmbeddingSpace) -> None:
    """The validation NLL is that of all val rows; each space's rows meet their own bank."""
    other = wrongly_labelled(5)
    head, history = fit(data, other)
    expected = part_nll(head, [data, other], VAL, 20)
    assert min(row["val_nll"] for row in history) == pytest.approx(expected, abs=1e-5)
    assert bytes_of(fit(data, relabelled(other, FIT))[0]) != bytes_of(head)


@pytest.mark.parametrize("batch_size", [7, 32, 500])
def test_an_epoch_meets_every_fit_row_of_every_space_once(data: EmbeddingSpace, batch_size: int) -> None:
    """The loss of epoch 0, of the head as it starts, is the mean over all of them."""
    other = wrongly_labelled(5)
    start, history = fit(data, other, epochs=0, batch_size=batch_size)
    assert history[0]["fit_loss"] == pytest.approx(part_nll(start, [data, other], FIT, 20), abs=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tabr"},
        {"parts": {"similarity": "l2"}},
        {"parts": {"prototypes": True, "move_prototypes": True}},
    ],
)
def test_what_is_learned_of_one_space_only_is_refused(data: EmbeddingSpace, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="mean nothing in another"):
        fit(data, data, **change)


def test_a_k_above_what_is_stored_is_that(data: EmbeddingSpace) -> None:
    assert fit(data, k_train=21, epochs=0)[0].k == 20

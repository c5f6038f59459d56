"""What is read off fields: representations, probes, rank correlations and reconstructions, by hand and by oracles."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Predictions, Split
from attnknn.core.errors import InputError
from attnknn.experiments.fields.agreement import agreements, exact_p, spearman
from attnknn.experiments.fields.comparison import compared_pairs
from attnknn.experiments.fields.fidelity import MEAN, NEAREST, image_errors, neighbours_filled, psnr_table, strips
from attnknn.experiments.fields.latents import Latents, known_points
from attnknn.experiments.fields.probe import SmallTransformer, linear_probe, transformer_probe
from attnknn.experiments.fields.readouts import by_neighbours, read_off
from attnknn.experiments.fields.representations import Tokens, filled, patches, pixel_tokens, standardised

SIDE = 4
FITTING = {"epochs": 2, "batch_size": 16, "lr": 0.003, "weight_decay": 0.0, "patience": 5, "restarts": 1}
NET = {"dim": 16, "heads": 2, "layers": 1, "dropout": 0.0, "batch_size": 16, "lr": 0.01}


def images(n: int = 120, seed: int = 0) -> Split:
    """Class 0 is bright above, class 1 below."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.integers(0, 90, (n, 1, SIDE, SIDE))
    x[y == 0, :, :2] += 120
    x[y == 1, :, 2:] += 120
    part = np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), n // 4)
    return Split(x.astype(np.uint8), y.astype(np.int64), part, ("above", "below"))


def test_patches_by_hand() -> None:
    x = torch.arange(16, dtype=torch.uint8).reshape(1, 1, 4, 4)
    made = patches(x, 2) * 255
    torch.testing.assert_close(made, torch.tensor([[[0.0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]))
    two = torch.stack([x[0, 0], 100 + x[0, 0]])[None]
    assert (patches(two, 2)[0, 0] * 255).round().tolist() == [0, 1, 4, 5, 100, 101, 104, 105], "channel by channel"


def test_what_is_not_known_is_in_no_token_and_in_no_filled_image() -> None:
    split = images()
    at = known_points("sparse", 120, SIDE * SIDE, 0.3, 2, seed=5)
    assert at.shape == (120, 4)
    x = np.array(split.x)
    hidden = np.ones((120, SIDE * SIDE), dtype=bool)
    np.put_along_axis(hidden, at.numpy(), False, axis=1)
    x.reshape(120, -1)[hidden] = 255
    other = Split(x, split.y, split.part, split.classes)
    mean = np.asarray(split.x)[np.asarray(split.part) == BANK].mean(0).round().reshape(-1)
    x.reshape(120, -1)[:30] = np.asarray(split.x).reshape(120, -1)[:30]  # of the bank all is known
    other = Split(x, split.y, split.part, split.classes)
    for one, again in zip(pixel_tokens(split, at, 2), pixel_tokens(other, at, 2), strict=True):
        torch.testing.assert_close(one, again)
    known = np.take_along_axis(np.asarray(split.x).reshape(120, -1), at.numpy(), axis=1)
    np.testing.assert_allclose(pixel_tokens(split, at, 2).values[..., 0], known / 255, atol=1e-6)
    assert pixel_tokens(split, at, 2).places is at
    nearest, means = (of.reshape(120, -1) for of in filled(split, at))
    for one, again in zip((nearest, means), filled(other, at), strict=True):
        np.testing.assert_array_equal(one, again.reshape(120, -1))
        np.testing.assert_array_equal(one[~hidden], np.asarray(split.x).reshape(120, -1)[~hidden])
    np.testing.assert_array_equal(means[hidden], np.broadcast_to(mean, (120, SIDE * SIDE))[hidden])
    full = known_points("full", 120, SIDE * SIDE, 0.3, 2, seed=5)
    (whole,) = filled(split, full)
    np.testing.assert_array_equal(whole, split.x)
    values, places = pixel_tokens(split, full, 2)
    torch.testing.assert_close(values, patches(torch.from_numpy(np.array(split.x)), 2))
    assert places.tolist() == [0, 1, 2, 3]


def test_vectors_are_standardised_by_the_bank_and_of_unit_length() -> None:
    rng, split = np.random.default_rng(1), images()
    vectors = rng.normal(3, 5, (120, 6)).astype(np.float32)
    vectors[:, 2] = 7
    made = standardised(vectors, split.part)
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    scaled = StandardScaler().fit(vectors[:30]).transform(vectors)
    np.testing.assert_allclose(made, scaled / np.linalg.norm(scaled, axis=1, keepdims=True), atol=1e-5)
    other = vectors.copy()
    other[90:] += 100
    np.testing.assert_array_equal(standardised(other, split.part)[:90], made[:90])


def test_neighbours_are_those_of_the_one_bank() -> None:
    split = images()
    z = standardised(split.x.reshape(120, -1).astype(np.float32), split.part)
    grids = {"ks": [3], "temperatures": [1.0], "priors": [1e-4], "ridges": [1.0]}
    worse = np.random.default_rng(0).normal(size=z.shape).astype(np.float32)  # val is not to choose it
    found = by_neighbours(
        [worse, z], split, 20, [5], "l2", k_train=3, k_eval=3, fitting=_fitting(), grids=grids, seed=0, device="cpu"
    )
    assert found.methods == ("uniform", "distance", "attention")
    peer = KNeighborsClassifier(3).fit(z[split.part == BANK], split.y[split.part == BANK])
    np.testing.assert_array_equal(found.probs[0].argmax(1), peer.predict(z[split.part == TEST]))


def test_val_rows_choose_the_kind_and_test_rows_do_not() -> None:
    """One kind tells val rows' classes and hides those of test rows, the other the reverse."""
    split = images()
    y, part = np.asarray(split.y), np.asarray(split.part)
    rng = np.random.default_rng(1)
    kinds = []
    for told in (VAL, TEST):
        own = np.where(np.isin(part, (BANK, FIT, told)), y, 1 - y)
        kinds.append(np.stack([np.cos(own * 2.0), np.sin(own * 2.0)], 1) + 0.05 * rng.normal(size=(len(y), 2)))
    grids = {"ks": [3], "temperatures": [1.0], "priors": [1e-4], "ridges": [1.0]}
    settings = {"k_train": 3, "k_eval": 3, "fitting": _fitting(), "grids": grids, "seed": 0, "device": "cpu"}
    for order in (kinds, kinds[::-1]):
        found = by_neighbours([z.astype(np.float32) for z in order], split, 20, [5], "l2", **settings)
        assert (found.probs[1].argmax(1) == found.y).mean() < 0.1, "by the kind that val rows take for the better"


@pytest.mark.parametrize("loud", [False, True])
def test_neighbours_may_take_vectors_as_they_are_or_standardised(loud: bool) -> None:
    """The class is in the one wide dimension of many, which standardising drowns; or in a narrow one beside a wide."""
    split = images()
    y, rng = np.asarray(split.y), np.random.default_rng(2)
    z = rng.normal(size=(120, 40 if loud else 2)).astype(np.float32) * (0.01 if loud else 1)
    z[:, 0] = (2 * y - 1) * (1 if loud else 0.01) + 0.001 * z[:, 0]
    grids = {"ks": [3], "temperatures": [1.0], "priors": [1e-4], "ridges": [1.0]}
    settings = {"k_train": 3, "k_eval": 3, "fitting": _fitting(), "grids": grids}
    searching = {"k_max": 20, "sizes": [5], "metric": "l2"}
    found = read_off([z], None, split, 0, "cpu", searching, settings, [1.0], {})
    assert (found.probs[found.methods.index("distance")].argmax(1) == found.y).mean() > 0.95


def test_the_transformer_s_input_is_the_one_written_out() -> None:
    net = SmallTransformer(2, 6, 3, dim=8, heads=2, layers=1, dropout=0.0).eval()
    values, places = torch.randn(5, 4, 2), torch.randint(0, 6, (5, 4))
    weights = net.weights.reshape(6, 2, 8)
    h = torch.stack(
        [
            torch.stack(
                [
                    v @ (net.project.weight.T + weights[p]) + net.project.bias + net.biases[p]
                    for v, p in zip(*of, strict=True)
                ]
            )
            for of in zip(values, places, strict=True)
        ]
    )
    torch.testing.assert_close(net(values, places), net.classify(net.blocks(h).mean(1)), atol=1e-5, rtol=1e-4)


def test_the_transformer_learns_from_fit_rows_too_and_whatever_the_scale() -> None:
    rng = np.random.default_rng(5)
    y, part = np.arange(240) % 3, np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), 60)
    y[(part == BANK) & (y == 2)] = 1  # class 2 is among fit rows alone
    values = torch.from_numpy(np.eye(3)[y] + 0.1 * rng.normal(size=(240, 3))).float()[:, None]
    tokens = Tokens(values, torch.arange(1))
    probs, _ = transformer_probe(tokens, y, part, 3, epochs=20, patience=20, seed=0, **NET)
    assert (probs.argmax(1) == y[part == TEST]).mean() > 0.95
    scaled = Tokens(1000 * values + 500, torch.arange(1))
    early = {**NET, "epochs": 1, "patience": 1, "seed": 0, "lr": 1e-3}  # unsure yet, so that a difference shows
    one, again = (transformer_probe(of, y, part, 3, **early)[0] for of in (tokens, scaled))
    np.testing.assert_allclose(again, one, atol=1e-3)


def _fitting() -> dict:
    from stages.params import read_params

    return read_params("digits", "train_attention").train_attention.model_dump() | FITTING


def test_the_linear_probe_is_the_best_c_on_val_and_never_sees_a_test_label() -> None:
    split = images()
    z = np.asarray(split.x).reshape(120, -1).astype(np.float32)
    probs, strength = linear_probe([z * 0, z], np.asarray(split.y), np.asarray(split.part), [1e-4, 0.1])
    known = np.isin(split.part, (BANK, FIT))
    scaler = StandardScaler().fit(z[known])
    oracle = LogisticRegression(C=strength, max_iter=1000).fit(scaler.transform(z[known]), split.y[known])
    np.testing.assert_allclose(probs, oracle.predict_proba(scaler.transform(z[split.part == TEST])), atol=1e-4)
    assert strength == 0.1
    y = np.array(split.y)
    y[split.part == TEST] = 1 - y[split.part == TEST]
    np.testing.assert_array_equal(linear_probe([z * 0, z], y, np.asarray(split.part), [1e-4, 0.1])[0], probs)


def test_the_transformer_learns_what_there_is_and_never_sees_a_test_label(monkeypatch) -> None:
    split = images()
    full = known_points("full", 120, SIDE * SIDE, 1.0, 1, seed=0)
    tokens, y, part = pixel_tokens(split, full, 2), np.array(split.y), np.asarray(split.part)
    probs, epoch = transformer_probe(tokens, y, part, 2, epochs=8, patience=8, seed=0, **NET)
    assert (probs.argmax(1) == y[part == TEST]).mean() > 0.95
    assert 1 <= epoch <= 8
    y[part == TEST] = 1 - y[part == TEST]
    np.testing.assert_array_equal(transformer_probe(tokens, y, part, 2, epochs=8, patience=8, seed=0, **NET)[0], probs)
    y[part == VAL] = 1 - y[part == VAL]
    validated = []
    monkeypatch.setattr(
        "sklearn.metrics.log_loss", lambda *a, **k: validated.append(log_loss(*a, **k)) or validated[-1]
    )
    _, best = transformer_probe(tokens, y, part, 2, epochs=8, patience=2, seed=0, **NET)
    assert best == 1, "by val the first epoch is best now"
    assert len(validated) == 3, "and two more show no better"


def test_the_transformer_knows_tokens_by_their_places() -> None:
    """The same tokens in another order say the same; what a value means is learnt place by place."""
    rng = np.random.default_rng(4)
    y, part = np.arange(400) % 2, np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), 100)
    places = torch.from_numpy(np.stack([rng.permutation(6)[:3] for _ in y]))
    sign = np.where(y[:, None] == 1, 1, -1) * np.where(places.numpy() < 3, 1, -1)  # turned round in half of the places
    values = torch.from_numpy(sign + 0.3 * rng.normal(size=sign.shape)).float()[..., None]
    probs, _ = transformer_probe(Tokens(values, places), y, part, 2, epochs=10, patience=10, seed=0, **NET)
    assert (probs.argmax(1) == y[part == TEST]).mean() > 0.95
    net = SmallTransformer(1, 6, 2, dim=16, heads=2, layers=1, dropout=0.0).eval()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        torch.testing.assert_close(net(values[:5, order], places[:5, order]), net(values[:5], places[:5]))
        one = torch.arange(3)  # the same for all images
        torch.testing.assert_close(net(values[:5], one), net(values[:5], one.expand(5, -1)))


def test_spearman_is_scipy_s_and_p_counts_orders() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 5, (9, 6)), rng.normal(size=(9, 6))
    expected = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(spearman(a.astype(float), b), expected, atol=1e-12)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    five = np.arange(5.0)
    assert exact_p(five, five) == pytest.approx(2 / 120), "the same order and its reverse"
    assert exact_p(five, np.array([0.0, 1, 2, 4, 3])) == pytest.approx(10 / 120), "and the four swaps of each"
    with pytest.raises(InputError, match="9 things; 8 at most"):
        exact_p(np.arange(9.0), np.arange(9.0))


def test_agreements_are_of_accuracies_over_the_same_rows() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 400)
    rates = {"a": (0.6, 0.9), "b": (0.7, 0.8), "c": (0.8, 0.7), "d": (0.9, 0.6)}
    probs, methods = [], []
    for name, of in rates.items():
        for readout, rate in zip(("knn", "probe"), of, strict=True):
            right = rng.random(400) < rate
            probs.append(0.8 * np.eye(2)[np.where(right, y, 1 - y)] + 0.1)
            methods.append(f"full:{name}:{readout}")
    found = Predictions(
        np.arange(400, dtype=np.int32), y, np.stack(probs).astype(np.float32), tuple(methods), ("n", "y")
    )
    (row,) = agreements(found, [("full", list(rates))], [("knn", "probe")], 200, 0.95, seed=0)
    assert row["rho"] == -1
    assert row["p"] == pytest.approx(2 / 24)
    assert row["low"] == -1
    assert row["high"] < -0.3
    (same,) = agreements(found, [("full", list(rates))], [("knn", "knn")], 200, 0.95, seed=0)
    assert (same["rho"], same["low"], same["high"]) == (1, 1, 1)


def test_only_pixels_that_were_not_shown_count() -> None:
    values, made = torch.zeros(2, 4, 1), torch.tensor([[[0.5], [0.1], [0.0], [0.0]], [[0.0], [0.0], [0.2], [0.9]]])
    at = torch.tensor([[0, 2], [1, 3]])
    np.testing.assert_allclose(image_errors(made, values, at), [0.01 / 2, 0.04 / 2], rtol=1e-5)
    everything = torch.arange(4).expand(2, -1)
    np.testing.assert_allclose(image_errors(made, values, everything), [0.26 / 4, 0.85 / 4], rtol=1e-5)


def test_filling_by_neighbours_is_the_mean_of_those_nearest_at_the_points() -> None:
    rng = np.random.default_rng(0)
    values, bank = (torch.from_numpy(rng.random((n, 12, 2))).float() for n in (5, 30))
    at = torch.from_numpy(np.stack([rng.permutation(12)[:4] for _ in range(5)]))
    for one, places, made in zip(values, at, neighbours_filled(values, at, bank, k=3), strict=True):
        apart = ((one[places] - bank[:, places]) ** 2).sum((1, 2))
        torch.testing.assert_close(made, bank[apart.argsort()[:3]].mean(0))


def test_psnr_is_of_the_mean_error_and_compared_image_by_image() -> None:
    errors = {(MEAN, "full"): np.array([0.1, 0.3]), ("full", "full"): np.array([0.001, 0.003])}
    rows = psnr_table(errors, 200, 0.95, seed=0)
    value = {(r["source"], r["baseline"]): r for r in rows}
    assert value["full", ""]["value"] == pytest.approx(10 * np.log10(1 / 0.002))
    above = value["full", MEAN]
    assert above["value"] == above["low"] == pytest.approx(20), "in every resample a hundredth of the error"
    assert (MEAN, MEAN) not in value
    assert ("full", NEAREST) not in value
    assert value["full", ""]["low"] < value["full", ""]["value"] < value["full", ""]["high"]


def test_strips_put_an_image_in_a_row_and_a_source_in_a_column() -> None:
    one, other = (np.full((2, 3, 4, 3), value, np.uint8) for value in (10, 20))
    other[1] = 30
    columns, picture = strips({("image", "full"): one, ("full", "full"): other})
    assert columns == ["full:image", "full:full"]
    made = np.asarray(picture)
    assert made.shape == (2 * 5, 2 * 6, 3)
    assert (made[1, 1, 0], made[1, 7, 0], made[6, 7, 0], made[0, 0, 0]) == (10, 20, 30, 255)


def test_latents_of_another_kind_are_refused() -> None:
    tokens = np.zeros((3, 2, 4), np.float16)
    assert (
        Latents(tokens + np.arange(2, dtype=np.float16)[:, None], "full", "sparse").pooled().tolist() == [[0.5] * 4] * 3
    )
    for wrong, message in (
        ((tokens.astype(np.float32), "full", "full"), "tokens: dtype float32; expected float16"),
        ((tokens[0], "full", "full"), r"tokens: shape \(2, 4\); expected"),
        ((tokens, "half", "full"), "variant: half; expected full or sparse"),
        ((tokens, "full", "half"), "mode: half; expected full or sparse"),
    ):
        with pytest.raises(InputError, match=message):
            Latents(*wrong)


def test_contrastive_fields_are_tested_against_those_without_and_all_against_pixels() -> None:
    both, fields = ("distance", "attention"), ("sparse", "sparse_nce")
    names = [f"full:{r}:{of}" for r in ("pixels", *fields) for of in both]
    assert set(compared_pairs(names)) == {
        *((f"full:{r}:{of}", f"full:pixels:{of}") for r in fields for of in both),
        *((f"full:sparse_nce:{of}", f"full:sparse:{of}") for of in both),
        *((f"full:{r}:attention", f"full:{r}:distance") for r in ("pixels", *fields)),
    }

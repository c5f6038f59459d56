"""Representations, probes, rank correlations and reconstructions, against hand-computed values and references."""

from dataclasses import replace
from itertools import product
from unittest import mock

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError
from attnknn.experiments.fields.fidelity import MEAN, NEAREST, fill_from_bank, image_errors, image_grid, psnr_table
from attnknn.experiments.fields.latents import Latents, context_pixels
from attnknn.experiments.fields.probe import SmallTransformer, linear_probe, transformer_probe
from attnknn.experiments.fields.readouts import knn_readouts, read_out
from attnknn.experiments.fields.representations import Tokens, filled_images, patches, pixel_tokens, standardise
from attnknn.experiments.fields.tables import agreements, compared_pairs, exact_p, spearman
from attnknn.heads.config import TrainAttention
from synthetic import rng
from synthetic_results import binary

SIDE = 4
FITTING = TrainAttention().model_dump()
FITTING |= {"epochs": 2, "batch_size": 16, "lr": 0.003, "weight_decay": 0.0, "patience": 5}
GRIDS = {"ks": [3], "temperatures": [1.0], "priors": [1e-4], "ridges": [1.0]}
KNN = {"k_max": 20, "sizes": [5], "metric": "l2", "k": 3, "fitting": FITTING, "grids": GRIDS}
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
    result = patches(x, 2) * 255
    torch.testing.assert_close(result, torch.tensor([[[0.0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]))
    two = torch.stack([x[0, 0], 100 + x[0, 0]])[None]
    assert (patches(two, 2)[0, 0] * 255).round().tolist() == [0, 1, 4, 5, 100, 101, 104, 105], "channel by channel"


def test_tokens_and_filled_images_use_only_the_context() -> None:
    split, idx = images(), context_pixels("sparse", 120, SIDE * SIDE, 0.3, 2, seed=5)
    assert idx.shape == (120, 4)
    x, bank = np.asarray(split.x).reshape(120, -1), np.asarray(split.part) == BANK
    hidden = np.ones(x.shape, dtype=bool)
    np.put_along_axis(hidden, idx.numpy(), False, axis=1)
    other_x = np.where(hidden & ~bank[:, None], 255, x)  # the bank's mean image uses all its pixels
    other = replace(split, x=other_x.reshape(split.x.shape).astype(np.uint8))
    tokens = pixel_tokens(split, idx, 2)
    for one, again in zip(tokens, pixel_tokens(other, idx, 2), strict=True):
        torch.testing.assert_close(one, again)
    np.testing.assert_allclose(tokens.values[..., 0], np.take_along_axis(x, idx.numpy(), axis=1) / 255, atol=1e-6)
    assert tokens.positions is idx
    nearest, means = filled_images(split, idx)
    for one, again in zip((nearest, means), filled_images(other, idx), strict=True):
        np.testing.assert_array_equal(one, again)
        np.testing.assert_array_equal(one.reshape(120, -1)[~hidden], x[~hidden])
    mean = np.broadcast_to(x[bank].mean(0).round(), x.shape)
    np.testing.assert_array_equal(means.reshape(120, -1)[hidden], mean[hidden])
    full = context_pixels("full", 120, SIDE * SIDE, 0.3, 2, seed=5)
    (whole,) = filled_images(split, full)
    np.testing.assert_array_equal(whole, split.x)
    values, positions = pixel_tokens(split, full, 2)
    torch.testing.assert_close(values, patches(torch.from_numpy(np.array(split.x)), 2))
    assert positions.tolist() == [0, 1, 2, 3]


def test_vectors_are_standardised_by_the_bank_and_of_unit_length() -> None:
    split = images()
    vectors = rng(1).normal(3, 5, (120, 6)).astype(np.float32)
    vectors[:, 2] = 7
    result = standardise(vectors, split.part)
    np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1, atol=1e-5)
    scaled = StandardScaler().fit(vectors[:30]).transform(vectors)
    np.testing.assert_allclose(result, scaled / np.linalg.norm(scaled, axis=1, keepdims=True), atol=1e-5)
    other = vectors.copy()
    other[90:] += 100
    np.testing.assert_array_equal(standardise(other, split.part)[:90], result[:90])


def test_knn_readouts_search_the_bank_and_val_rows_choose_the_kind_of_vectors() -> None:
    split = images()
    z = standardise(split.x.reshape(120, -1).astype(np.float32), split.part)
    worse = rng().normal(size=z.shape).astype(np.float32)  # to be rejected on val
    predictions = knn_readouts([worse, z], split, **KNN, seed=0, device="cpu")
    assert predictions.methods == ("uniform", "distance", "attention")
    peer = KNeighborsClassifier(3).fit(z[split.part == BANK], split.y[split.part == BANK])
    np.testing.assert_array_equal(predictions.probs[0].argmax(1), peer.predict(z[split.part == TEST]))
    y, part, kinds = np.asarray(split.y), np.asarray(split.part), []
    for informative in (VAL, TEST):  # one kind separates val rows and misleads on test rows, the other the reverse
        labels = np.where(np.isin(part, (BANK, FIT, informative)), y, 1 - y)
        kinds.append(np.stack([np.cos(labels * 2.0), np.sin(labels * 2.0)], 1) + 0.05 * rng(1).normal(size=(len(y), 2)))
    for order in (kinds, kinds[::-1]):
        predictions = knn_readouts([z.astype(np.float32) for z in order], split, **KNN, seed=0, device="cpu")
        assert (predictions.probs[1].argmax(1) == predictions.y).mean() < 0.1, "the kind that is better on val"


@pytest.mark.parametrize("loud", [False, True])
def test_knn_takes_vectors_as_they_are_or_standardised(loud: bool) -> None:
    """The class is in the one dimension of large variance among many, or in one of small variance beside a large."""
    split = images()
    y, rng = np.asarray(split.y), np.random.default_rng(2)
    z = rng.normal(size=(120, 40 if loud else 2)).astype(np.float32) * (0.01 if loud else 1)
    z[:, 0] = (2 * y - 1) * (1 if loud else 0.01) + 0.001 * z[:, 0]
    predictions = read_out([z], None, split, KNN, [1.0], {}, seed=0, device="cpu")
    assert (predictions.probs[predictions.methods.index("distance")].argmax(1) == predictions.y).mean() > 0.95


def test_transformer_input_matches_its_definition() -> None:
    net = SmallTransformer(2, 6, 3, dim=8, heads=2, layers=1, dropout=0.0).eval()
    values, positions = torch.randn(5, 4, 2), torch.randint(0, 6, (5, 4))
    weights = net.weights.reshape(6, 2, 8)
    weights = net.project.weight.T + weights[positions]
    h = torch.einsum("bpc,bpcd->bpd", values, weights) + net.project.bias + net.biases[positions]
    torch.testing.assert_close(net(values, positions), net.classify(net.blocks(h).mean(1)), atol=1e-5, rtol=1e-4)


def test_the_transformer_uses_fit_rows_and_ignores_the_scale() -> None:
    rng = np.random.default_rng(5)
    y, part = np.arange(240) % 3, np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), 60)
    y[(part == BANK) & (y == 2)] = 1  # class 2 is among fit rows alone
    values = torch.from_numpy(np.eye(3)[y] + 0.1 * rng.normal(size=(240, 3))).float()[:, None]
    tokens = Tokens(values, torch.arange(1))
    probs, _ = transformer_probe(tokens, y, part, 3, epochs=20, patience=20, seed=0, **NET)
    assert (probs.argmax(1) == y[part == TEST]).mean() > 0.95
    scaled = Tokens(1000 * values + 500, torch.arange(1))
    early = NET | {"epochs": 1, "patience": 1, "seed": 0, "lr": 1e-3}  # far from convergence
    one, again = (transformer_probe(inputs, y, part, 3, **early)[0] for inputs in (tokens, scaled))
    np.testing.assert_allclose(again, one, atol=1e-3)


def test_the_linear_probe_is_the_best_c_on_val_and_never_sees_a_test_label() -> None:
    split = images()
    z = np.asarray(split.x).reshape(120, -1).astype(np.float32)
    probs, strength = linear_probe([z * 0, z], np.asarray(split.y), np.asarray(split.part), [1e-4, 0.1])
    train = np.isin(split.part, (BANK, FIT))
    scaler = StandardScaler().fit(z[train])
    oracle = LogisticRegression(C=strength, max_iter=1000).fit(scaler.transform(z[train]), split.y[train])
    np.testing.assert_allclose(probs, oracle.predict_proba(scaler.transform(z[split.part == TEST])), atol=1e-4)
    assert strength == 0.1
    y = np.array(split.y)
    y[split.part == TEST] = 1 - y[split.part == TEST]
    np.testing.assert_array_equal(linear_probe([z * 0, z], y, np.asarray(split.part), [1e-4, 0.1])[0], probs)


def test_the_transformer_learns_and_never_sees_a_test_label(monkeypatch) -> None:
    split = images()
    full = context_pixels("full", 120, SIDE * SIDE, 1.0, 1, seed=0)
    tokens, y, part = pixel_tokens(split, full, 2), np.array(split.y), np.asarray(split.part)
    probs, epoch = transformer_probe(tokens, y, part, 2, epochs=8, patience=8, seed=0, **NET)
    assert (probs.argmax(1) == y[part == TEST]).mean() > 0.95
    assert 1 <= epoch <= 8
    y[part == TEST] = 1 - y[part == TEST]
    np.testing.assert_array_equal(transformer_probe(tokens, y, part, 2, epochs=8, patience=8, seed=0, **NET)[0], probs)
    y[part == VAL] = 1 - y[part == VAL]
    spy = mock.Mock(side_effect=log_loss)
    monkeypatch.setattr("sklearn.metrics.log_loss", spy)
    _, best = transformer_probe(tokens, y, part, 2, epochs=8, patience=2, seed=0, **NET)
    assert best == 1, "val now prefers the first epoch"
    assert spy.call_count == 3, "patience: two more epochs"


def test_the_transformer_reads_tokens_by_their_positions() -> None:
    """The order of tokens makes no difference; what a value means is learnt per position."""
    rng = np.random.default_rng(4)
    y, part = np.arange(400) % 2, np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), 100)
    positions = torch.from_numpy(np.stack([rng.permutation(6)[:3] for _ in y]))
    sign = np.where(y[:, None] == 1, 1, -1) * np.where(positions.numpy() < 3, 1, -1)  # reversed at half of them
    values = torch.from_numpy(sign + 0.3 * rng.normal(size=sign.shape)).float()[..., None]
    probs, _ = transformer_probe(Tokens(values, positions), y, part, 2, epochs=10, patience=10, seed=0, **NET)
    assert (probs.argmax(1) == y[part == TEST]).mean() > 0.95
    net = SmallTransformer(1, 6, 2, dim=16, heads=2, layers=1, dropout=0.0).eval()
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        torch.testing.assert_close(net(values[:5, order], positions[:5, order]), net(values[:5], positions[:5]))
        one = torch.arange(3)  # the same for all images
        torch.testing.assert_close(net(values[:5], one), net(values[:5], one.expand(5, -1)))


def test_spearman_matches_scipy_and_p_counts_permutations() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 5, (9, 6)), rng.normal(size=(9, 6))
    expected = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(spearman(a.astype(float), b), expected, atol=1e-12)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    five = np.arange(5.0)
    assert exact_p(five, five) == pytest.approx(2 / 120), "the same order and its reverse"
    assert exact_p(five, np.array([0.0, 1, 2, 4, 3])) == pytest.approx(10 / 120), "and four adjacent swaps of each"


def test_agreements_correlate_accuracies_on_the_same_rows() -> None:
    rates = dict(zip("abcd", (0.6, 0.7, 0.8, 0.9), strict=True))
    both = {f"full:{n}:knn": r for n, r in rates.items()} | {f"full:{n}:probe": 1.5 - r for n, r in rates.items()}
    predictions = binary(both, seed=3)
    (row,) = agreements(predictions, [("full", list(rates))], [("knn", "probe")], 200, 0.95, seed=0)
    assert row["rho"] == -1
    assert row["p"] == pytest.approx(2 / 24)
    assert row["low"] == -1
    assert row["high"] < -0.3
    (same,) = agreements(predictions, [("full", list(rates))], [("knn", "knn")], 200, 0.95, seed=0)
    assert (same["rho"], same["low"], same["high"]) == (1, 1, 1)


def test_image_errors_leave_out_the_context_and_psnr_is_of_their_mean_with_paired_differences() -> None:
    values, reconstruction = torch.zeros(2, 4, 1), torch.tensor([[0.5, 0.1, 0, 0], [0, 0, 0.2, 0.9]])[..., None]
    idx = torch.tensor([[0, 2], [1, 3]])
    np.testing.assert_allclose(image_errors(reconstruction, values, idx), [0.01 / 2, 0.04 / 2], rtol=1e-5)
    all_idx = torch.arange(4).expand(2, -1)
    np.testing.assert_allclose(image_errors(reconstruction, values, all_idx), [0.26 / 4, 0.85 / 4], rtol=1e-5)
    errors = {(MEAN, "full"): np.array([0.1, 0.3]), ("full", "full"): np.array([0.001, 0.003])}
    rows = psnr_table(errors, 200, 0.95, seed=0)
    value = {(r["source"], r["baseline"]): r for r in rows}
    assert value["full", ""]["value"] == pytest.approx(10 * np.log10(1 / 0.002))
    above = value["full", MEAN]
    assert above["value"] == above["low"] == pytest.approx(20), "a hundredth of the error in every resample"
    assert (MEAN, MEAN) not in value
    assert ("full", NEAREST) not in value
    assert value["full", ""]["low"] < value["full", ""]["value"] < value["full", ""]["high"]


def test_fill_from_bank_averages_the_nearest_by_context() -> None:
    rng = np.random.default_rng(0)
    values, bank = (torch.from_numpy(rng.random((n, 12, 2))).float() for n in (5, 30))
    idx = torch.from_numpy(np.stack([rng.permutation(12)[:4] for _ in range(5)]))
    for one, pixels, result in zip(values, idx, fill_from_bank(values, idx, bank, k=3), strict=True):
        distances = ((one[pixels] - bank[:, pixels]) ** 2).sum((1, 2))
        torch.testing.assert_close(result, bank[distances.argsort()[:3]].mean(0))


def test_image_grid_has_a_row_per_image_and_a_column_per_source() -> None:
    one, other = (np.full((2, 3, 4, 3), value, np.uint8) for value in (10, 20))
    other[1] = 30
    columns, picture = image_grid({("image", "full"): one, ("full", "full"): other})
    assert columns == ["full:image", "full:full"]
    grid = np.asarray(picture)
    assert grid.shape == (2 * 5, 2 * 6, 3)
    assert (grid[1, 1, 0], grid[1, 7, 0], grid[6, 7, 0], grid[0, 0, 0]) == (10, 20, 30, 255)


def test_invalid_latents_are_refused() -> None:
    tokens = np.zeros((3, 2, 4), np.float16)
    counted = Latents(tokens + np.arange(2, dtype=np.float16)[:, None], "full", "sparse")
    assert counted.pooled().tolist() == [[0.5] * 4] * 3
    for wrong, message in (
        ((tokens.astype(np.float32), "full", "full"), "tokens: dtype float32; expected float16"),
        ((tokens[0], "full", "full"), r"tokens: shape \(2, 4\); expected"),
        ((tokens, "half", "full"), "variant: half; expected full or sparse"),
        ((tokens, "full", "half"), "mode: half; expected full or sparse"),
    ):
        with pytest.raises(InputError, match=message):
            Latents(*wrong)


def test_fields_are_paired_with_pixels_and_with_their_baselines() -> None:
    both, fields = ("distance", "attention"), ("sparse", "sparse_nce", "sparse_views")
    expected = {(f"full:{field}:{readout}", f"full:pixels:{readout}") for field, readout in product(fields, both)}
    expected |= {
        (f"full:sparse_nce:{readout}", f"full:{base}:{readout}")
        for base in ("sparse", "sparse_views")
        for readout in both
    }
    expected |= {(f"full:{name}:attention", f"full:{name}:distance") for name in ("pixels", *fields)}
    names = [f"full:{name}:{readout}" for name, readout in product(("pixels", *fields), both)]
    assert set(compared_pairs(names)) == expected

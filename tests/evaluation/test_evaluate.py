"""Every method, on the same rows, by the same rules."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from attnknn.core.artifacts import BANK, FIT, TEST, VAL
from attnknn.core.errors import InputError
from attnknn.evaluation.calibration import KINDS, vector_scale
from attnknn.evaluation.evaluate import Comparison, compare
from attnknn.heads.attention import Attention
from attnknn.heads.baselines import Distance, Uniform, similarity_scale, tune_distance, tune_uniform
from attnknn.heads.classify import classify, classify_part
from attnknn.neighbours.space import EmbeddingSpace, part_neighbours
from synthetic import blobs, embedded, part_nll, relabelled, retrieved

GRIDS = {"ks": [1, 3, 8], "temperatures": [0.05, 0.2, 0.5, 1.0], "priors": [0.001, 0.03, 0.1]}
GRIDS["ridges"] = [0.001, 0.1, 10.0]
BASES = ("uniform", "distance", "attention", "prototypes", "linear")


@pytest.fixture(scope="module")
def data() -> EmbeddingSpace:
    return retrieved(embedded(blobs(360, noise=1.5)))


def heads(dim: int = 7) -> dict[str, Attention]:
    parts = {"attention": {}, "prototypes": {"prototypes": True, "neighbours": False}}
    return {name: Attention(dim, 3, 2, 0.5, 0.05, **kwargs).eval() for name, kwargs in parts.items()}


def run(*spaces: EmbeddingSpace, k_eval: int = 20, **settings: Any) -> Comparison:
    settings = {**GRIDS, "calibrations": ("temperature", "vector"), **settings}
    return compare(spaces, heads(spaces[0].embeddings.z.shape[1]), k_eval, **settings)


@pytest.fixture(scope="module")
def plain(data: EmbeddingSpace) -> Comparison:
    return run(data)


def test_all_methods_answer_all_test_rows(data: EmbeddingSpace) -> None:
    result = run(data, calibrations=KINDS)
    calibrated = [f"{base}_{kind}" for base in BASES for kind in KINDS]
    assert result.test.methods == result.val.methods == (*BASES, *calibrated)
    for answered, part in ((result.test, TEST), (result.val, VAL)):
        np.testing.assert_array_equal(answered.rows, data.embeddings.rows(part))
        np.testing.assert_array_equal(answered.y, data.embeddings.y[answered.rows])
    assert set(result.tuned) == {"uniform", "distance", *calibrated}
    assert result.tuned["uniform"]["k"] in (1, 3, 8, 20)


def test_the_mean_over_folds_is_over_their_encoders_and_the_main_one(data: EmbeddingSpace, plain: Comparison) -> None:
    """By hand: each answers the main test rows in its own space; nothing else moves."""
    rng = np.random.default_rng(0)
    e = data.embeddings
    z = e.z + 0.5 * rng.normal(size=e.z.shape).astype(np.float32)
    other = retrieved(dataclasses.replace(e, z=(z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)))
    result = run(data, members=[other])
    assert result.test.methods == (*plain.test.methods, "distance-folds", "attention-folds")
    np.testing.assert_array_equal(result.test.probs[:-2], plain.test.probs)
    np.testing.assert_array_equal(result.val.probs, plain.val.probs)
    by_hand = [classify_part(heads()["attention"], [space], TEST, 20) for space in (data, other)]
    np.testing.assert_allclose(result.test.probs[-1], np.mean(by_hand, axis=0), rtol=1e-6)
    assert (by_hand[0] != by_hand[1]).any()


def test_fault_7_no_method_gives_a_class_probability_zero(data: EmbeddingSpace, plain: Comparison) -> None:
    for result in (plain, run(data, k_eval=1)):
        assert (result.test.probs > 0).all()


def test_fault_4_test_labels_change_no_probability_and_no_choice(data: EmbeddingSpace, plain: Comparison) -> None:
    after = run(relabelled(data, TEST))
    np.testing.assert_array_equal(plain.test.probs, after.test.probs)
    assert plain.tuned == after.tuned


def test_fault_8_baselines_are_tuned_on_val_and_calibrated_on_fit(data: EmbeddingSpace, plain: Comparison) -> None:
    tuned = plain.tuned
    on_val, on_fit = run(relabelled(data, VAL)).tuned, run(relabelled(data, FIT)).tuned
    for name in ("distance", "uniform"):
        assert on_val[name] != tuned[name] == on_fit[name]
    assert on_fit["linear_temperature"] != tuned["linear_temperature"]
    assert on_val["linear_vector"] != tuned["linear_vector"], "val rows choose the settings of calibration too"
    best = part_nll(Distance(**tuned["distance"]), [data], VAL, 20)
    untuned = [Distance(k, 1.0, e) for k in (1, 3, 8, 20) for e in GRIDS["priors"]]
    assert best <= min(part_nll(head, [data], VAL, 20) for head in untuned) + 1e-6


def test_val_rows_are_calibrated_as_test_rows_are(plain: Comparison) -> None:
    temperature = plain.tuned["linear_temperature"]["temperature"]
    assert abs(temperature - 1) > 0.1
    for answered in (plain.val, plain.test):
        linear, calibrated = (answered.probs[answered.methods.index(name)] for name in ("linear", "linear_temperature"))
        expected = vector_scale(np.log(linear), np.array(1 / temperature), np.array(0.0))
        np.testing.assert_allclose(calibrated, expected, atol=1e-6)


def test_fault_8_the_whole_grid_is_searched() -> None:
    """Data whose best k is below k_eval and whose best τ is not 1: leaving either untuned gives other values."""
    data = retrieved(embedded(blobs(360, noise=0.5, dim=2, seed=3)))
    temperatures = [0.2, 0.5, 1.0, 2.0]
    tuned = run(data, temperatures=temperatures, calibrations=()).tuned
    sims, labels = part_neighbours([data], VAL, 20)
    val = sims, labels, data.embeddings.y[data.embeddings.rows(VAL)], data.shares, [1, 3, 8, 20]
    assert tuned["uniform"] == tune_uniform(*val, GRIDS["priors"])
    assert tuned["distance"] == tune_distance(*val, temperatures, GRIDS["priors"])
    assert max(tuned["uniform"]["k"], tuned["distance"]["k"]) < 20
    assert tuned["distance"]["temperature"] != pytest.approx(similarity_scale(sims))


def test_folds_tune_and_calibrate_but_never_answer(data: EmbeddingSpace, plain: Comparison) -> None:
    """Their val rows count in tuning, their fit rows in calibration, their test rows in nothing."""
    fold = retrieved(embedded(blobs(360, noise=0.7, seed=4)))
    with_fold = run(data, fold)
    assert with_fold.tuned["distance"] != plain.tuned["distance"]
    np.testing.assert_array_equal(with_fold.test.rows, plain.test.rows)
    assert len(with_fold.val.y) == len(plain.val.y) + len(fold.embeddings.rows(VAL))
    idx = plain.test.methods.index("attention")
    np.testing.assert_array_equal(with_fold.test.probs[idx], plain.test.probs[idx])
    other = run(data, relabelled(fold, FIT))
    assert other.tuned["distance"] == with_fold.tuned["distance"]
    assert other.tuned["linear_temperature"] != with_fold.tuned["linear_temperature"]
    np.testing.assert_array_equal(run(data, relabelled(fold, TEST)).test.probs, with_fold.test.probs)


@pytest.mark.parametrize(
    ("head", "weights"), [(Uniform(9, 0.0), "uniform"), (Distance(9, 0.3, 0.0), lambda d: np.exp(-(d**2) / 0.3))]
)
def test_votes_equal_scikit_learns(data: EmbeddingSpace, head: Any, weights: Any) -> None:
    e = data.embeddings
    bank, test = e.rows(BANK), e.rows(TEST)
    peer = KNeighborsClassifier(9, weights=weights).fit(e.z[bank], e.y[bank])
    np.testing.assert_allclose(classify(head, data, test, 20), peer.predict_proba(e.z[test]), atol=1e-5)


def test_a_smaller_k_is_a_slice(data: EmbeddingSpace) -> None:
    test, head = data.embeddings.rows(TEST), heads()["attention"]
    fewer = retrieved(data.embeddings, 7)
    np.testing.assert_array_equal(classify(head, data, test, 6), classify(head, fewer, test, 6))


def test_without_a_linear_head_and_with_too_large_a_k(data: EmbeddingSpace) -> None:
    e = dataclasses.replace(data.embeddings, logits=None)
    methods = run(dataclasses.replace(data, embeddings=e)).test.methods
    assert not any("linear" in name for name in methods)
    assert "attention_vector" in methods
    with pytest.raises(InputError, match="k_eval: 21 is above the 20"):
        run(data, k_eval=21)

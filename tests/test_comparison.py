"""Every method, on the same rows, by the same rules."""

import dataclasses

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from attnknn.artifacts import BANK, FIT, TEST, VAL, Embeddings, Neighbours, Predictions
from attnknn.classify import classify
from attnknn.comparison import compare
from attnknn.errors import InputError
from attnknn.heads import Attention, Distance, Uniform
from attnknn.metrics import METRICS
from attnknn.scorecard import intervals_and_tests, reliability, scores
from attnknn.tuning import Tuned, spread, tune_distance, tune_uniform
from attnknn.votes import class_shares
from data import blobs, embedded, searched

GRIDS = {
    "ks": [1, 3, 8],
    "temperatures": [0.05, 0.2, 0.5, 1.0],
    "priors": [0.001, 0.03, 0.1],
    "ridges": [0.001, 0.1, 10.0],
}
METHODS = ("uniform", "distance", "distance_vector", "attention", "linear", "linear_temperature")


@pytest.fixture(scope="module")
def data() -> tuple[Embeddings, Neighbours]:
    embeddings = embedded(blobs(360, noise=1.5))
    return embeddings, searched(embeddings)


def run(data: tuple[Embeddings, Neighbours], k_eval: int = 20) -> tuple[Predictions, dict[str, Tuned]]:
    return compare(*data, Attention(7, 0.5, 0.05), k_eval, **GRIDS)  # type: ignore[arg-type]


def relabelled(data: tuple[Embeddings, Neighbours], part: int) -> tuple[Embeddings, Neighbours]:
    y = np.array(data[0].y)
    at = data[0].part == part
    y[at] = np.random.default_rng(0).permutation(y[at])
    return dataclasses.replace(data[0], y=y), data[1]


def test_all_methods_answer_all_test_rows(data: tuple[Embeddings, Neighbours]) -> None:
    predictions, tuned = run(data)
    assert predictions.methods == METHODS
    np.testing.assert_array_equal(predictions.rows, data[0].rows(TEST))
    np.testing.assert_array_equal(predictions.y, data[0].y[predictions.rows])
    assert set(tuned) == {"uniform", "distance", "distance_vector", "linear_temperature"}
    assert tuned["uniform"]["k"] in (1, 3, 8, 20)


def test_fault_7_no_method_gives_a_class_probability_zero(data: tuple[Embeddings, Neighbours]) -> None:
    for k_eval in (1, 20):
        assert (run(data, k_eval)[0].probs > 0).all()


def test_fault_4_test_labels_change_no_probability_and_no_choice(data: tuple[Embeddings, Neighbours]) -> None:
    (before, tuned), (after, tuned_after) = run(data), run(relabelled(data, TEST))
    np.testing.assert_array_equal(before.probs, after.probs)
    assert tuned == tuned_after


def test_fault_8_baselines_are_tuned_on_val_and_calibrated_on_fit(data: tuple[Embeddings, Neighbours]) -> None:
    tuned = run(data)[1]
    on_val, on_fit = run(relabelled(data, VAL))[1], run(relabelled(data, FIT))[1]
    assert on_val["distance"] != tuned["distance"]
    assert on_val["uniform"] != tuned["uniform"]
    assert (on_fit["distance"], on_fit["uniform"]) == (tuned["distance"], tuned["uniform"])
    assert on_fit["linear_temperature"] != tuned["linear_temperature"]
    assert on_val["linear_temperature"] == tuned["linear_temperature"]
    rows = data[0].rows(VAL)

    def nll(head: Distance) -> float:
        probs = classify(head, *data, rows, 20)
        return -float(np.log(probs[np.arange(len(rows)), data[0].y[rows]]).mean())

    best = nll(Distance(**tuned["distance"]))  # type: ignore[arg-type]
    assert best <= min(nll(Distance(k, 1.0, e)) for k in (1, 3, 8, 20) for e in GRIDS["priors"]) + 1e-6


def test_fault_8_the_whole_grid_is_searched() -> None:
    """Data whose best k is below k_eval and whose best τ is not 1: leaving either untuned gives other values."""
    embeddings = embedded(blobs(360, noise=0.5, dim=2, seed=3))
    neighbours = searched(embeddings)
    grids = {**GRIDS, "temperatures": [0.2, 0.5, 1.0, 2.0]}
    tuned = compare(embeddings, neighbours, Attention(2, 0.5, 0.05), 20, **grids)[1]  # type: ignore[arg-type]
    rows, y = embeddings.rows(VAL), embeddings.y
    ids, sims = neighbours.of(rows, 20)
    val = sims, y[ids], y[rows], class_shares(y[embeddings.rows(BANK)], 3), [1, 3, 8, 20]
    assert tuned["uniform"] == tune_uniform(*val, GRIDS["priors"])
    assert tuned["distance"] == tune_distance(*val, grids["temperatures"], GRIDS["priors"])
    assert tuned["uniform"]["k"] < 20
    assert tuned["distance"]["k"] < 20
    assert tuned["distance"]["temperature"] != pytest.approx(spread(sims))


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_votes_equal_scikit_learns(data: tuple[Embeddings, Neighbours], weights: str) -> None:
    embeddings, neighbours = data
    bank, test = embeddings.rows(BANK), embeddings.rows(TEST)

    def weigh(distance: np.ndarray) -> np.ndarray:
        return np.exp(-(distance**2) / 0.3)

    peer = KNeighborsClassifier(9, weights="uniform" if weights == "uniform" else weigh)
    peer.fit(embeddings.z[bank], embeddings.y[bank])
    head = Uniform(9, 0.0) if weights == "uniform" else Distance(9, 0.3, 0.0)
    probs = classify(head, embeddings, neighbours, test, 20)
    np.testing.assert_allclose(probs, peer.predict_proba(embeddings.z[test]), atol=1e-5)


def test_a_smaller_k_is_a_slice(data: tuple[Embeddings, Neighbours]) -> None:
    embeddings, _ = data
    test = embeddings.rows(TEST)
    head = Attention(7, 0.5, 0.05)
    sliced = classify(head, embeddings, searched(embeddings, 20), test, 6)
    np.testing.assert_array_equal(sliced, classify(head, embeddings, searched(embeddings, 6), test, 6))


def test_k_eval_above_what_is_stored(data: tuple[Embeddings, Neighbours]) -> None:
    with pytest.raises(InputError, match="k_eval: 21 is above the 20"):
        run(data, 21)


def test_without_a_linear_head(data: tuple[Embeddings, Neighbours]) -> None:
    assert run((dataclasses.replace(data[0], logits=None), data[1]))[0].methods == METHODS[:4]


def test_scorecard(data: tuple[Embeddings, Neighbours]) -> None:
    predictions = run(data)[0]
    table = scores(predictions, 15)
    intervals, paired = intervals_and_tests(predictions, "attention", 15, 200, 0.95, seed=0)
    assert set(table) == set(METHODS)
    assert len(intervals) == len(METHODS) * len(METRICS)
    for row in intervals:
        assert row["value"] == table[row["method"]][row["metric"]]
        assert row["low"] <= row["value"] <= row["high"], "also ECE, whose resamples are biased upwards"
    assert len(paired) == (len(METHODS) - 1) * 3
    for row in paired:
        expected = table["attention"][row["metric"]] - table[row["baseline"]][row["metric"]]
        assert row["difference"] == pytest.approx(expected)
        assert 0 < row["p"] <= 1
    bins = [row for row in reliability(predictions, 15) if row["method"] == "attention"]
    assert sum(row["count"] for row in bins) == len(predictions.y)
    full = [row for row in bins if row["count"]]
    assert all(row["low"] < row["confidence"] <= row["high"] for row in full)
    gap = sum(row["count"] * abs(row["confidence"] - row["accuracy"]) for row in full) / len(predictions.y)
    assert gap == pytest.approx(table["attention"]["ece"])


def test_a_method_against_its_own_copy_is_no_finding(data: tuple[Embeddings, Neighbours]) -> None:
    p = run(data)[0]
    twice = Predictions(p.rows, p.y, np.stack([p.probs[3], p.probs[3]]), ("attention", "copy"), p.classes)
    for row in intervals_and_tests(twice, "attention", 15, 200, 0.95, seed=0)[1]:
        assert row["difference"] == row["low"] == row["high"] == 0
        assert row["p"] == 1


def test_the_same_method_up_to_rounding_is_no_finding(data: tuple[Embeddings, Neighbours]) -> None:
    p = run(data)[0]
    close = np.asarray(p.probs[3], dtype=np.float64) ** (1 + 1e-8)
    close = (close / close.sum(1, keepdims=True)).astype(np.float32)
    twice = Predictions(p.rows, p.y, np.stack([p.probs[3], close]), ("attention", "copy"), p.classes)
    for row in intervals_and_tests(twice, "attention", 15, 200, 0.95, seed=0)[1]:
        assert abs(row["difference"]) < 1e-6
        assert row["p"] == 1
        assert row["errors"] == (p.probs[3].argmax(1) != p.y).sum()

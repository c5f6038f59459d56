"""Which labels are probably wrong: by hand, on clusters with wrong labels, of a dataset, a model and new rows."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from attnknn import AttnKNNClassifier, expected_precision, find_label_issues, summarise_label_issues
from attnknn.classifier.audit import issues, nearest_of, with_duplicates
from attnknn.core.errors import InputError

SETTINGS: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three clusters, labels of which 20 % are wrong, and which."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=900)
    y = np.where(rng.random(900) < 0.2, (true + rng.integers(1, 3, size=900)) % 3, true)
    return 2 * np.eye(3, 5)[true] + 0.6 * rng.normal(size=(900, 5)), NAMES[y], y != true


@pytest.fixture(scope="module")
def frame(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> pd.DataFrame:
    return find_label_issues(*data[:2], **SETTINGS)


def test_qualities_by_hand() -> None:
    """Without noise in T, of two classes 10.1 % is assumed: .2·.899 against .8·.101, .001·.899 against .999·.101."""
    probs, y = np.array([[0.8, 0.2], [0.999, 0.001], [0.999, 0.001]]), np.array([1, 1, 0])
    result = issues(probs, y, np.eye(2), np.array(["a", "b"]), False)
    np.testing.assert_allclose(
        result["label_quality"], [0.1798 / 0.2606, 0.000899 / 0.101798, 0.898101 / 0.898202], atol=1e-5
    )
    assert result["is_label_issue"].tolist() == [False, True, False]
    assert result["predicted_label"].tolist() == ["b", "a", "a"]
    assert not result.attrs["evident"]
    many = issues(
        np.tile([[0.3, 0.7], [0.6, 0.4]], (50, 1)), np.tile([1, 1], 50), np.eye(2), np.array(["a", "b"]), False
    )
    expected = 50 * (1 - many["label_quality"][:2]).sum()
    assert many["is_label_issue"].sum() == round(expected)
    assert many["is_label_issue"][::2].sum() == 0, "the second row of each pair is the more suspicious one"
    noisy = issues(probs[:1], y[:1], np.array([[0.5, 0.5], [0.0, 1.0]]), np.array(["a", "b"]), True)
    assert noisy["is_label_issue"].item()  # .2·1 against .8·.5
    assert noisy.attrs["evident"]
    rows = issues(np.array([[0.6, 0.3, 0.1], [0.5, 0.5, 0.0]]), np.array([2, 2]), np.eye(3), NAMES, False)
    wrong = 0.6 * (0.1 * 0.1 / 0.4 + 0.0005) + 0.3 * (0.1 * 0.1 / 0.7 + 0.0005)
    np.testing.assert_allclose(rows["label_quality"], [0.0899 / (0.0899 + wrong), 0], atol=1e-6)
    assert rows["is_label_issue"].tolist() == [False, True]


def test_a_similar_class_is_more_suspicious_than_many_others() -> None:
    """Both labels have probability .2; the first row clearly is of another class, the second of none."""
    probs = np.array([[0.2, 0.8, 0.0, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])
    first, second = issues(probs, np.array([0, 0]), np.eye(5), np.arange(5), False)["label_quality"]
    assert first < second


def test_nearest_and_duplicates_by_hand() -> None:
    labels, ids = np.array([[2, 1, 1], [2, 2, -1]]), np.array([[7, 4, 9], [3, 5, -1]])
    np.testing.assert_array_equal(nearest_of(labels, ids, labels == 1), [4, -1])
    z, y = np.array([[0.0], [1.0], [0.0], [0.0]]), np.array([0, 0, 1, 0])
    counts = with_duplicates(pd.DataFrame(index=range(4)), z, y, np.array([0.0, 6.0, 1.0, 2.0]))
    assert counts["nearest_distance"].tolist() == [0, 3, 0.5, 1]
    assert counts["n_identical"].tolist() == [2, 0, 2, 2]
    assert counts["n_conflicting"].tolist() == [1, 0, 2, 1]


def test_summary_by_hand() -> None:
    rows = pd.DataFrame(
        {
            "is_label_issue": [True, False, True],
            "label_quality": [0.0, 1.0, 0.5],
            "given_label": ["a", "c", "a"],
            "predicted_label": ["b", "c", "b"],
        }
    )
    np.testing.assert_allclose(expected_precision(rows), [1, 0.75, 0.5])
    result = summarise_label_issues(rows)
    assert (result["rows"], result["flagged"], result["wrong"]) == (3, 2, 1.5)
    assert 0 <= result["wrong_low"] <= 1.5 <= result["wrong_high"] <= 3
    assert result["pairs"].to_dict("records") == [
        {"given_label": "a", "predicted_label": "b", "flagged": 2, "expected_wrong": 1.5}
    ]
    by_class = [(row["given_label"], row["rows"], row["expected_wrong"]) for _, row in result["classes"].iterrows()]
    assert by_class == [("a", 2, 1.5), ("c", 1, 0.0)]


def test_wrong_labels_are_found_and_counted(data: tuple[np.ndarray, ...], frame: pd.DataFrame) -> None:
    X, y, wrong = data
    assert average_precision_score(wrong, -frame["label_quality"]) > 0.97
    assert frame["given_label"].tolist() == y.tolist()
    assert wrong[frame["is_label_issue"]].mean() > 0.9
    result = summarise_label_issues(frame)
    assert result["wrong_low"] < wrong.sum() < result["wrong_high"]
    order = np.argsort(frame["label_quality"].to_numpy())
    for n in (100, 200, 400):
        assert expected_precision(frame)[n - 1] == pytest.approx(wrong[order[:n]].mean(), abs=0.05)
    contradicted = frame["contradicted_by"].to_numpy()
    assert (y[contradicted] != y).all()
    assert (y[frame["supported_by"]] == y).all()
    distances = np.linalg.norm(X[:, None] - X[None], axis=2) + 100 * (y[:, None] == y[None])
    np.testing.assert_array_equal(contradicted, distances.argmin(1))


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_wrong_labels_of_many_classes_of_few_rows_are_found(share: float) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 10)
    X = rng.normal(size=(40, 8))[y] * 4 + rng.normal(size=(400, 8))
    labels = np.where(rng.random(400) < share, (y + rng.integers(1, 40, size=400)) % 40, y)
    result, wrong = find_label_issues(X, labels, **SETTINGS), labels != y
    assert not result.attrs["evident"], "ten rows a class do not show how classes are confused"
    assert abs((1 - result["label_quality"]).mean() - wrong.mean()) < 0.04
    assert (result["is_label_issue"] == wrong).mean() > 0.95


def test_other_probabilities_are_corrected_by_the_noise_that_they_show() -> None:
    """A third of class 0 is labelled 1: such labels are less credible than the probabilities alone say."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=1500)
    y = np.where((true == 0) & (rng.random(1500) < 1 / 3), 1, true)
    probs = 0.9 * np.eye(3)[true] + 0.1 / 3
    result = find_label_issues(rng.normal(size=(1500, 2)), y, pred_probs=probs, **SETTINGS)
    assert result.attrs["evident"]
    assert (result["is_label_issue"] == (y != true)).all()
    assert (1 - result["label_quality"]).sum() == pytest.approx((y != true).sum(), rel=0.05)
    wrong = result["label_quality"][y != true]
    assert wrong.max() < 0.02, "by the probabilities alone, .033 of .967"


def overlapping(n: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    return distance * np.eye(3, 5)[y] + rng.normal(size=(n, 5)), y


@pytest.mark.parametrize("distance", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("n", [300, 900])
def test_overlapping_classes_are_no_evidence_of_wrong_labels(n: int, distance: float) -> None:
    assert not find_label_issues(*overlapping(n, distance), **SETTINGS).attrs["evident"]


@pytest.mark.parametrize("classifier", [LogisticRegression(max_iter=500), KNeighborsClassifier(10)])
def test_right_labels_are_no_evidence_by_other_probabilities(classifier: Any) -> None:
    for X, y in (load_iris(return_X_y=True), load_digits(return_X_y=True), overlapping(900, 1.5)):
        probs = cross_val_predict(classifier, X, y, method="predict_proba")
        result = find_label_issues(X, y, pred_probs=probs, **SETTINGS)
        assert not result.attrs["evident"]
        assert (1 - result["label_quality"]).mean() < 0.15


def test_the_index_of_a_data_frame_is_kept(data: tuple[np.ndarray, ...]) -> None:
    X, y = data[0][:90], data[1][:90]
    frame = find_label_issues(X, y, **SETTINGS)
    index = [f"row {i}" for i in range(len(X))][::-1]
    named = find_label_issues(pd.DataFrame(X, index=index, columns=list("abcde")), y, **SETTINGS)
    assert named.index.tolist() == index
    assert named["label_quality"].tolist() == frame["label_quality"].tolist()
    model = AttnKNNClassifier(max_iter=1, random_state=0).fit(pd.DataFrame(X, columns=list("abcde")), y)
    assert model.audit(pd.DataFrame(X[:5], index=index[:5], columns=list("abcde")), y[:5]).index.tolist() == index[:5]
    with pytest.raises(InputError, match="y: None is no label"):
        model.audit(pd.DataFrame(X[:2], columns=list("abcde")), [None, None])
    assert len(model.audit(pd.DataFrame(X[:5], columns=list("abcde")), y[:5, None])) == 5


def test_nearest_distance_is_a_distance() -> None:
    X = np.concatenate([np.arange(30.0), [100.0, 103.0]])[:, None]
    result = find_label_issues(X, np.arange(32) % 2, **SETTINGS)
    np.testing.assert_allclose(result["nearest_distance"][-2:], 3, rtol=1e-5)
    np.testing.assert_allclose(result["nearest_distance"][:30], 1, rtol=1e-5)


def test_identical_rows_do_not_vouch_for_each_other() -> None:
    """A wrong label that was copied with its row: the copies are held out together for the regression and the head."""
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=300)
    X = 3 * np.eye(2, 4)[true] + rng.normal(size=(300, 4))
    y = np.where(np.arange(300) < 20, 1 - true, true)
    X, y = np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]])
    wrong = np.r_[np.ones(20, bool), np.zeros(280, bool), np.ones(20, bool)]
    result = find_label_issues(X, y, **SETTINGS)
    assert (result["n_identical"][wrong] == 1).all()
    assert average_precision_score(wrong, -result["label_quality"]) > 0.8


@pytest.mark.parametrize("params", [{"storage": "x"}, {"label_noise": "auto"}, {"foo": 1}])
def test_parameters_without_effect_are_refused(data: tuple[np.ndarray, ...], params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no parameter here"):
        find_label_issues(*data[:2], **params)


def test_a_model_of_two_rows_cannot_be_audited(data: tuple[np.ndarray, ...]) -> None:
    X, y, _ = data
    model = AttnKNNClassifier(5, max_iter=1, random_state=0).fit(X[:30], y[:30]).forget(range(28))
    with pytest.raises(ValueError, match="a memory of 2 rows"):
        model.audit()


def test_right_labels_are_kept() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=600)
    result = find_label_issues(2 * np.eye(3, 5)[y] + 0.4 * rng.normal(size=(600, 5)), y, **SETTINGS)
    assert result["is_label_issue"].mean() < 0.005
    assert summarise_label_issues(result)["wrong"] < 6


def test_probabilities_of_another_classifier_take_the_place_of_ours(data: tuple[np.ndarray, ...]) -> None:
    X, y, wrong = data
    probs = np.asarray(cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba"))
    result = find_label_issues(X, y, pred_probs=probs, **SETTINGS)
    assert average_precision_score(wrong, -result["label_quality"]) > 0.95
    named = pd.DataFrame(probs[:, ::-1], columns=[*NAMES[::-1]])  # whose order would be ignored
    bads = (probs[:9], "of shape"), (probs * 2, "sum to 1"), (probs - 0.1, "sum to 1"), (named, "a data frame")
    for bad, message in bads:
        with pytest.raises(ValueError, match=message):
            find_label_issues(X, y, pred_probs=bad)


def test_a_model_is_audited_with_the_labels_that_it_was_given(
    data: tuple[np.ndarray, ...], frame: pd.DataFrame
) -> None:
    X, y, wrong = data
    model = AttnKNNClassifier(label_noise="auto", max_iter=5, **SETTINGS).fit(X[:400], y[:400])
    own = model.audit()
    pd.testing.assert_frame_equal(own, find_label_issues(X[:400], y[:400], **SETTINGS), rtol=1e-4)
    new = model.audit(X[400:], y[400:])
    assert average_precision_score(wrong[400:], -new["label_quality"]) > 0.9
    assert set(new["contradicted_by"]) <= set(range(400))
    model.forget(np.arange(200))
    left = model.audit()
    assert left.index.tolist() == list(range(200, 400))
    assert (left["contradicted_by"] >= 200).all()
    assert left["given_label"].tolist() == y[200:400].tolist()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((9, 2)), np.zeros(9), "a single class"),
        (np.full((9, 2), np.nan), np.arange(9) % 2, "NaN"),
        (np.zeros((2, 2)), [0, 1], "n_samples = 2"),
        (np.zeros((9, 2)), np.arange(8) % 2, "inconsistent"),
    ],
)
def test_bad_input(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_label_issues(X, y)


def test_bad_calls_of_audit_are_one_line(data: tuple[np.ndarray, ...]) -> None:
    X, y, _ = data
    model = AttnKNNClassifier(max_iter=3, **SETTINGS).fit(X[:100], y[:100])
    for args, message in (
        ((X,), "give both, or neither"),
        ((X, y[:9]), "9 labels for 900 rows"),
        ((X[:1], ["dog"]), "unknown labels dog"),
        ((X[:, 1:], y), "features"),
    ):
        with pytest.raises(ValueError, match=message):
            model.audit(*args)


def test_relabelled_rows_keep_vectors_and_weights(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, y, _ = data
    model = AttnKNNClassifier(weights="distance", **SETTINGS).fit(X[:300], y[:300], np.linspace(1, 2, 300))
    vectors, weight = model.memory_.vectors_of(np.array([7, 3])), model.memory_.weight[[7, 3]]  # type: ignore[attr-defined]
    model.relabel([7, 3], ["ant", "cat"])
    memory = model.memory_
    assert memory.all_ids().tolist() == [*np.delete(np.arange(300), [3, 7]), 300, 301]
    np.testing.assert_array_equal(memory.vectors_of(np.array([300, 301])), vectors)
    np.testing.assert_array_equal(memory.weight[-2:], weight)  # type: ignore[attr-defined]
    assert model.classes_[memory.labels_of(np.array([300, 301]))].tolist() == ["ant", "cat"]
    for ids, labels, message in (([7], ["ant"], "7 not in"), ([8, 8], ["ant"] * 2, "once"), ([8], [1], "int64")):
        with pytest.raises(ValueError, match=message):
            model.relabel(ids, labels)
    assert len(memory) == 300


def test_new_rows_are_audited_through_the_noise_of_the_model() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=1200)
    X = 2 * np.eye(3, 5)[true] + 0.5 * rng.normal(size=(1200, 5))
    y = np.where((true == 0) & (rng.random(1200) < 0.3), 1, true)
    model = AttnKNNClassifier(20, label_noise="auto", max_iter=5, random_state=0).fit(X[:1000], y[:1000])
    assert model.transition_ is not None
    expected = issues(model.predict_proba(X[1000:]), y[1000:], model.transition_, model.classes_, True)
    result = model.audit(X[1000:], y[1000:])
    np.testing.assert_array_equal(result["label_quality"], expected["label_quality"])
    without = issues(model.predict_proba(X[1000:]), y[1000:], np.eye(3), model.classes_, False)
    assert not np.allclose(result["label_quality"], without["label_quality"])

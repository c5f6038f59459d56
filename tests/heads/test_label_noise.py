import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from attnknn import AttnKNNClassifier
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings
from attnknn.core.errors import InputError
from attnknn.experiments.corruption import TRAINING_PARTS, with_noise
from attnknn.experiments.forward_networks import forward_networks
from attnknn.experiments.peers import EMBEDDING_PEERS, fit_and_predict
from attnknn.heads import label_noise as noise
from attnknn.heads import transition as matrices
from attnknn.heads.baselines import tune_distance, tune_uniform
from attnknn.heads.classify import classify
from attnknn.heads.config import TrainAttention
from attnknn.heads.prototypes import scaled_logits
from attnknn.neighbours.search import retrieve

GRID = {"temperatures": (0.1, 0.5, 2.0, 16.0), "priors": (0.001, 0.01, 0.1), "seed": 0, "device": "cpu", "k_train": 30}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def clusters(rng, spread=0.25, n=2600, classes=4):
    """Unit vectors around one direction a class; parts bank, fit, val, test."""
    y = rng.integers(classes, size=n)
    z = np.eye(classes, 8)[y] + spread * rng.normal(size=(n, 8))
    z = (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)
    part = np.repeat([BANK, FIT, VAL, TEST], np.array([7, 2, 2, 2]) * n // 13).astype(np.int8)
    return retrieve(Embeddings(z, y, part, tuple("abcd")), 30, (5, 20))


def settings(**changes):
    return TrainAttention(epochs=30, batch_size=32, **changes).model_dump() | GRID


def transition_of(before, after):
    rows = np.asarray(before.embeddings.part) != TEST
    counts = np.zeros((4, 4))
    np.add.at(counts, (before.embeddings.y[rows], after.embeddings.y[rows]), 1)
    return counts / counts.sum(1, keepdims=True)


def nll(probs, y):
    return -np.log(probs[np.arange(len(y)), y]).mean()


def test_posterior_by_hand():
    """.6·.5 : .4·.25 = 3 : 1."""
    t = np.array([[0.5, 0.5], [0.75, 0.25]])
    np.testing.assert_allclose(matrices.posterior(np.array([[0.6, 0.4]]), np.array([1]), t), [[0.75, 0.25]])


def test_count_labels_takes_the_surest_half_of_each_class():
    probs = np.array([[p, 1 - p] for p in np.linspace(0.99, 0.51, 20)] + [[0.1, 0.9]] * 10)
    y = np.array([0] * 8 + [1] * 2 + [1] * 10 + [1] * 10)
    np.testing.assert_allclose(matrices.count_labels(probs, y), [[0.8, 0.2], [0, 1]])


def test_a_class_that_is_never_predicted_keeps_its_labels():
    np.testing.assert_array_equal(matrices.count_labels(np.array([[0.9, 0.1]] * 6), np.zeros(6, int))[1], [0, 1])


def test_expectation_maximisation_raises_the_likelihood(rng, monkeypatch):
    probs, y = rng.dirichlet([0.3] * 3, 500), rng.integers(3, size=500)

    def value(t):
        return np.log((probs @ t)[np.arange(500), y]).sum()

    monkeypatch.setattr(matrices, "SHARPNESS", (1.0,))
    start = np.full((3, 3), 1 / 3) + 0.2 * np.eye(3)
    values = [value(matrices.expect_labels(probs, y, start, n)[0]) for n in (1, 2, 5, 20)]
    assert values == sorted(values)


def test_probabilities_that_are_not_sure_enough_or_too_sure_are_corrected(rng, monkeypatch):
    """Without it, T has too few wrong labels, or too many. Right probabilities are kept."""
    n, t = 20_000, 0.6 * np.eye(4) + 0.1
    probs = matrices.sharpen(rng.dirichlet([0.2] * 4, size=n), 2.0)
    true = (probs.cumsum(1) > rng.random((n, 1))).argmax(1)
    y = (t[true].cumsum(1) > rng.random((n, 1))).argmax(1)
    start = 0.8 * np.eye(4) + 0.05
    for power in (0.5, 1.0, 2.0, 4.0):
        estimate, sharpness = matrices.expect_labels(matrices.sharpen(probs, 1 / power), y, start, 100)
        assert sharpness == power
        assert np.abs(estimate - t).max() < 0.02
        assert matrices.expect_labels(matrices.sharpen(probs, 1 / power), y, t, 0)[1] == power
    assert matrices.expect_labels(matrices.sharpen(probs, 0.5)[:40], y[:40], t, 0)[1] == 1.0, "40 rows are no evidence"
    monkeypatch.setattr(matrices, "SHARPNESS", (1.0,))
    estimate, _ = matrices.expect_labels(matrices.sharpen(probs, 0.25), y, start, 100)
    assert np.diag(estimate).mean() > 0.73
    estimate, _ = matrices.expect_labels(matrices.sharpen(probs, 2.0), y, start, 100)
    assert np.diag(estimate).mean() < 0.67


@pytest.mark.parametrize(("kind", "rate"), [("symmetric", 0.3), ("symmetric", 0.5), ("asymmetric", 0.4)])
def test_wrong_labels_are_seen_through(rng, kind, rate):
    """T within .06 a cell of the true one, labels mended, and a better NLL of clean labels than without."""
    clean = clusters(rng)
    (noisy,) = with_noise([clean], rate, rng, kind, TRAINING_PARTS)
    estimate = noise.estimate_label_noise([noisy], **settings())
    assert np.abs(estimate.transition - transition_of(clean, noisy)).mean() < 0.03
    assert abs(estimate.wrong - rate) < 0.05
    (corrected,) = noise.with_corrected_labels([noisy], estimate, seed=0)
    bank, test = clean.embeddings.rows(BANK), clean.embeddings.rows(TEST)
    y = np.asarray(clean.embeddings.y)
    assert (corrected.embeddings.y[bank] == y[bank]).mean() > (noisy.embeddings.y[bank] == y[bank]).mean() + 0.2
    for part in (FIT, VAL, TEST):
        rows = clean.embeddings.rows(part)
        np.testing.assert_array_equal(corrected.embeddings.y[rows], noisy.embeddings.y[rows])
    plain = noise.fit_head([noisy], **settings())[0]
    through = noise.fit_head([corrected], transition=estimate.transition, **settings())[0]
    assert nll(classify(through, corrected, test, 30), y[test]) < 0.6 * nll(classify(plain, noisy, test, 30), y[test])


def test_right_labels_are_left_alone(rng):
    estimate = noise.estimate_label_noise([clusters(rng)], **settings())
    assert not estimate.evident
    np.testing.assert_allclose(estimate.transition, np.eye(4), atol=0.02)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_share_of_wrong_labels_of_many_classes_is_estimated(rng, share, power):
    """Also from probabilities that are less sure than they should be."""
    probs = rng.dirichlet(np.full(50, 0.03), size=4000)
    y = (rng.random((4000, 1)) > probs.cumsum(1)).sum(1).clip(0, 49)
    wrong = rng.random(4000) < share
    y[wrong] = (y[wrong] + rng.integers(1, 50, size=wrong.sum())) % 50
    transition, sharpness = matrices.expect_uniform(matrices.sharpen(np.maximum(probs, 1e-12), power), y)
    np.testing.assert_allclose(transition.sum(1), 1)
    np.testing.assert_allclose(1 - np.diag(transition), share, atol=0.03)
    if share:
        assert sharpness == 1 / power


@pytest.mark.parametrize("rows", [36, 200, 260])
def test_rows_that_are_too_few_are_known_before_they_are_fitted(rng, rows):
    """Even if each of four classes is predicted for a quarter of the rows."""
    half = np.concatenate(matrices.surest(np.eye(4)[np.arange(rows) % 4]))
    assert matrices.too_few_rows(rows, 4) <= (len(half) < matrices.PRECISE * 4)
    assert matrices.too_few_rows(rows, 4) == (rows == 36)


def test_few_rows_are_no_evidence(rng):
    (few,) = with_noise([clusters(rng, n=208)], 0.4, rng, parts=TRAINING_PARTS)
    (many,) = with_noise([clusters(rng)], 0.4, rng, parts=TRAINING_PARTS)
    assert [noise.estimate_label_noise([space], **settings()).evident for space in (few, many)] == [False, True]


def test_overlapping_classes_of_few_rows_are_not_taken_for_wrong_labels():
    """13 % of the surest half have another label, and 9 % of the surest tenth, where none is wrong."""
    X, y = make_classification(900, 10, n_informative=5, n_classes=3, class_sep=0.8, flip_y=0, random_state=0)
    X, _, y, _ = train_test_split(StandardScaler().fit_transform(X), y, test_size=0.4, random_state=0, stratify=y)
    assert AttnKNNClassifier(label_noise="auto", random_state=0).fit(X, y).transition_ is None


@pytest.mark.parametrize(("n", "share"), [(1800, 0.15), (3000, 0.3)])
def test_a_class_that_is_nowhere_the_most_frequent_is_kept(n, share):
    """15 or 30 % of one blob's rows are of another class: an overlap, though a matrix explains the labels as well."""
    rng = np.random.default_rng(1)
    blob = rng.integers(3, size=n)
    X, y = 4 * np.eye(3)[blob] + 0.5 * rng.normal(size=(n, 3)), np.where((blob == 1) & (rng.random(n) < share), 3, blob)
    assert AttnKNNClassifier(label_noise="auto", max_iter=10, random_state=0).fit(X, y).transition_ is None


def test_a_class_that_is_rarer_than_another_everywhere_is_no_noise():
    """Rates of 5 and 25 % by segment; T explains them as well if all of one segment were of the rare class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 4))
    y = (rng.random(2500) < np.where(X[:, 0] > 0, 0.25, 0.05)).astype(int)
    assert AttnKNNClassifier(label_noise="auto", max_iter=10, random_state=0).fit(X, y).transition_ is None


def test_a_class_of_few_rows_does_not_prevent_the_correction_of_others():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), (240, 240, 240, 8))
    X, wrong = 4 * np.eye(4)[y] + 0.5 * rng.normal(size=(len(y), 4)), (rng.random(len(y)) < 0.4) & (y < 3)
    model = AttnKNNClassifier(label_noise="auto", max_iter=10, random_state=0).fit(X, np.where(wrong, (y + 1) % 3, y))
    assert model.transition_ is not None
    np.testing.assert_allclose(model.transition_[:3], 0.6 * np.eye(3, 4) + 0.4 * np.eye(3, 4)[[1, 2, 0]], atol=0.1)
    np.testing.assert_array_equal(model.transition_[3], [0, 0, 0, 1])


def test_labels_that_an_encoder_memorised_are_not_counted(rng):
    """Bank rows lie at the class that is written on them; only fit and val rows show how many labels are wrong."""
    clean = clusters(rng)
    (noisy,) = with_noise([clean], 0.4, rng, parts=(FIT, VAL))
    estimate = noise.estimate_label_noise([noisy], held_out=True, **settings())
    assert estimate.evident
    assert estimate.wrong == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("names", [(0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)])
def test_the_order_of_classes_does_not_matter(rng, names):
    clean = clusters(rng, n=780)
    (noisy,) = with_noise([clean], 0.4, rng, "asymmetric", TRAINING_PARTS)
    space = noise.with_labels(noisy, np.array(names)[np.asarray(noisy.embeddings.y)])
    estimate = noise.estimate_label_noise([space], **settings())
    assert estimate.evident
    assert np.abs(estimate.transition[np.ix_(names, names)] - transition_of(clean, noisy)).mean() < 0.03


def test_a_nearly_singular_matrix_is_not_inverted(rng):
    """Of 46 % to the next of four classes, the least singular value is .08; the estimate is close to it."""
    (noisy,) = with_noise([clusters(rng)], 0.46, rng, "asymmetric", TRAINING_PARTS)
    estimate = noise.estimate_label_noise([noisy], **settings())
    assert not estimate.evident
    np.testing.assert_array_equal(estimate.transition, np.eye(4))


def test_labels_of_test_rows_are_not_read(rng):
    space, few = clusters(rng, n=780), settings() | {"epochs": 5}
    y = np.array(space.embeddings.y)
    y[space.embeddings.rows(TEST)] = 0
    a, b = (noise.estimate_label_noise([s], **few) for s in (space, noise.with_labels(space, y)))
    np.testing.assert_array_equal(a.transition, b.transition)


def test_held_out_logits_do_not_read_the_rows_own_label(rng):
    (space,) = with_noise([clusters(rng)], 0.3, rng, parts=TRAINING_PARTS)
    bank, y = space.embeddings.rows(BANK), np.array(space.embeddings.y)
    fold = np.array_split(np.random.default_rng(0).permutation(bank), noise.FOLDS)[0]
    y[fold] = (y[fold] + 1) % 4
    a, b = (noise.with_forward_logits(s, np.eye(4), (1.0,))[0] for s in (space, noise.with_labels(space, y)))
    same = (a.embeddings.logits == b.embeddings.logits).all(1)
    np.testing.assert_array_equal(np.flatnonzero(same), np.sort(fold))


def test_drawn_labels_follow_the_posterior(rng):
    n, t = 20_000, np.array([[0.8, 0.2], [0.4, 0.6]])
    drawn = noise.draw_labels(np.tile([0.5, 0.5], (n, 1)), np.zeros(n, int), t, seed=0)
    assert (drawn == 0).mean() == pytest.approx(2 / 3, abs=0.01)


def test_a_known_matrix_is_taken_as_it_is(rng):
    t = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    np.testing.assert_array_equal(noise.estimate_label_noise([clusters(rng)], t, **settings()).transition, t)


@pytest.mark.parametrize(
    "bad",
    [
        np.eye(3),
        np.full((4, 4), 0.3),
        -np.eye(4),
        np.full((4, 4), 0.25),
        np.full((4, 4), 0.2499) + 0.0004 * np.eye(4),
        np.full((4, 4), np.nan),
        [1, 2],
        [["a"]],
        np.eye(4) + 0j,
        pd.DataFrame(np.eye(4)),
        [[1], [0, 1]],
    ],
)
def test_a_bad_matrix_is_refused(bad):
    with pytest.raises(InputError, match="label_noise"):
        matrices.check_transition(bad, 4)


def test_networks_see_through_wrong_labels(rng, monkeypatch):
    monkeypatch.setattr("attnknn.experiments.forward_networks.GCE_NETWORKS", {})  # they read no matrix
    clean = clusters(rng)
    (noisy,) = with_noise([clean], 0.5, rng, parts=TRAINING_PARTS)
    y = np.asarray(clean.embeddings.y)[clean.embeddings.rows(TEST)]
    through, blind = (
        forward_networks([noisy.embeddings], t, seed=0)[0] for t in (transition_of(clean, noisy), np.eye(4))
    )
    for name in ("linear", "bank-rbf", "bank-mlp"):
        assert nll(through[name][2], y) < nll(blind[name][2], y) - 0.2


def test_baselines_are_tuned_by_the_given_labels(rng):
    """The ε and k chosen have the lowest NLL of votes·T of the grid, by brute force."""
    sims, labels = -np.sort(rng.random((300, 9)), 1).astype(np.float32), rng.integers(3, size=(300, 9))
    t = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.2, 0.0, 0.8]])
    y = np.array([rng.choice(3, p=t[rng.choice(row)]) for row in labels])
    shares, ks, priors = torch.tensor([0.5, 0.3, 0.2]), [1, 3, 9], [0.01, 0.1, 0.3]
    chosen = tune_uniform(sims, labels, y, shares, ks, priors, t)

    def value(k, prior):
        votes = np.stack([(labels[:, :k] == c).mean(1) for c in range(3)], 1)
        return nll(((1 - prior) * votes + prior * shares.numpy()) @ t, y)

    assert min((value(k, p), k, p) for k in ks for p in priors)[1:] == (chosen["k"], chosen["prior"])
    assert (
        tune_distance(sims, labels, y, shares, [9], [1e6], priors, transition=t)["prior"]
        == tune_uniform(sims, labels, y, shares, [9], priors, t)["prior"]
    )


def test_generalised_cross_entropy_stays_sure_under_noise_where_cross_entropy_does_not(rng):
    """With T = I and 40 % wrong labels, cross-entropy's probabilities approach those of the given labels, .6."""
    (noisy,) = with_noise([clusters(rng, n=1300)], 0.4, rng, parts=TRAINING_PARTS)
    probs = {name: own[2].max(1).mean() for name, own in forward_networks([noisy.embeddings], np.eye(4), 0)[0].items()}
    for plain, robust in (("linear", "gce-linear"), ("bank-rbf", "gce-rbf"), ("bank-mlp", "gce-mlp")):
        assert probs[plain] < 0.65
        assert probs[robust] > 0.8


def test_other_classifiers_are_selected_through_the_transition(rng):
    """Bank labels right, 40 % of val labels wrong: without T half of the class shares is added to every answer."""
    clean = clusters(rng, n=1300)
    (noisy,) = with_noise([clean], 0.4, rng, parts=TRAINING_PARTS)
    e, t = clean.embeddings, np.full((4, 4), 0.4 / 3) + (0.6 - 0.4 / 3) * np.eye(4)
    data = [(np.asarray(e.z), np.where(e.part == VAL, noisy.embeddings.y, e.y), e.part)]
    options = {"tries": 1, "seed": 0, "threads": 1, "train": [BANK]}
    linear = {"linear": EMBEDDING_PEERS["linear"]}
    plain, through = (fit_and_predict(data, linear, **options, transition=x)[1]["linear"] for x in (None, t))
    assert (plain["prior"], through["prior"]) == (0.5, 1e-6)


def test_scaled_logits_are_fitted_through_the_transition(rng):
    """A gain of 2 is found again; with the transition turned around or left out it is not."""
    x = rng.normal(size=(2, 20_000, 3))
    clean = (2 * x + np.array([0.5, 0.0, -0.5]) + rng.gumbel(size=x.shape)).argmax(2)
    t = 0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1)
    noisy = (t[clean].cumsum(2) > rng.random((2, 20_000, 1))).argmax(2)
    gains = [
        scaled_logits([*x], [np.zeros((20_000, 3))] * 2, [*noisy], [1e-6], unit=1.0, transition=one)[0]
        for one in (t, t.T, None)
    ]
    assert gains[0] == pytest.approx(2, abs=0.1)
    assert max(gains[1:]) < 1.5

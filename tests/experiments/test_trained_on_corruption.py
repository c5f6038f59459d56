"""Training on corrupted labels: labels that each step sees, and pairs that are compared."""

import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import synthetic
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Embeddings, Split
from attnknn.core.files import read_json, write_json
from attnknn.encoder import fit
from attnknn.encoder.config import TrainEmbedder
from attnknn.evaluation.metrics import shot_accuracy
from attnknn.experiments import train_corrupted
from attnknn.experiments.ablation import NOTHING
from attnknn.experiments.corruption import NETWORK, NETWORKS, NOISES, with_noise, with_rare_classes, with_wrong_labels
from attnknn.experiments.trained_on_corruption import COLUMNS, compare_trained
from attnknn.neighbours.space import EmbeddingSpace
from synthetic import SCORING, blobs, embedded, pictures, retrieved, rng

PARTS = NOTHING | {"features": ["agreement"], "hidden": 4, "learned_prior": True}
FITTING = synthetic.FITTING | {"weight_decay": 0.0, "patience": 5, "parts": PARTS}
GRIDS = {"ks": [5, 20], "temperatures": [0.1, 1.0], "priors": [0.01, 0.3], "ridges": [0.01, 10.0]}
SETTINGS: dict[str, Any] = {"k": 20, "fitting": FITTING, "grids": GRIDS, "device": "cpu"}


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("make", [blobs, pictures])
def test_fault_10_labels_are_wrong_wherever_anything_is_learned_and_test_labels_stay(kind: str, make: Any) -> None:
    split = make()
    noisy = with_wrong_labels(split, 0.4, kind, rng())
    for part in (BANK, FIT, VAL):
        rows = split.rows(part)
        assert (noisy.y[rows] != split.y[rows]).sum() == round(0.4 * len(rows))
    np.testing.assert_array_equal(noisy.y[split.rows(TEST)], split.y[split.rows(TEST)])
    np.testing.assert_array_equal(noisy.x, split.x)
    np.testing.assert_array_equal(noisy.part, split.part)


def test_class_sizes_decay_in_every_part_but_test() -> None:
    split = blobs(600)
    rare = with_rare_classes(split, 0.1, "long_tail", rng())
    for part in (BANK, FIT, VAL):
        before, after = (np.bincount(s.y[s.rows(part)]) for s in (split, rare))
        expected = np.round(before.max() * 0.1 ** np.array([0, 0.5, 1])).astype(int)
        np.testing.assert_array_equal(after, np.minimum(before, expected))
    np.testing.assert_array_equal(rare.x[rare.rows(TEST)], split.x[split.rows(TEST)])
    np.testing.assert_array_equal(rare.y[rare.rows(TEST)], split.y[split.rows(TEST)])


def test_shot_accuracy_by_hand() -> None:
    """Counts 5, 90, 20, 40: many is class 1, few is class 0, medium the mean of 3 (one half) and 2 (all)."""
    y = np.array([0, 0, 1, 1, 1, 2, 3, 3])
    predicted = np.array([0, 1, 1, 1, 0, 2, 3, 0])
    result = shot_accuracy(np.eye(4)[predicted], y, np.array([5, 90, 20, 40]))
    assert result == {"many": pytest.approx(2 / 3), "medium": pytest.approx(3 / 4), "few": pytest.approx(1 / 2)}
    assert shot_accuracy(np.eye(2)[[0, 1]], np.array([0, 0]), np.array([3, 9])) == {"few": 0.5}


def network(e: Embeddings) -> Embeddings:
    return dataclasses.replace(e, logits=np.asarray(e.logits)[:, ::-1].copy())


def test_under_noise_every_variant_is_scored_on_clean_test_rows(tmp_path: Path) -> None:
    split = blobs(300, noise=0.5)
    cleaned = retrieved(embedded(split))
    e = cleaned.embeddings
    y = np.where(np.isin(e.part, (FIT, VAL)), with_wrong_labels(split, 0.4, "symmetric", rng()).y, e.y)
    cleaned = dataclasses.replace(cleaned, embeddings=dataclasses.replace(e, y=y))
    (plain,) = with_noise([cleaned], 0.4, rng())  # bank labels are wrong here, and right in `cleaned`
    plain.save(tmp_path / "plain")
    cleaned.save(tmp_path / "cleaned")
    for name, outputs in zip(NETWORKS, (network(plain.embeddings), plain.embeddings), strict=True):
        outputs.save(tmp_path / name)
    write_json(tmp_path / "cleaning.json", {"rounds": [{"wrong_after": 0.2}, {"wrong_after": 0.1}]})
    scores, tables = compare_trained({"symmetric-0.4": tmp_path}, split.y, SCORING, 0, **SETTINGS)
    assert [tuple(table[0]) for table in list(tables.values())[:3]] == list(COLUMNS.values())[:3]
    condition = {"condition": "noise 0.4", "rate": 0.4, "quantity": "wrong_after"}
    assert tables["cleaning"] == [condition | {"round": 1, "value": 0.2}, condition | {"round": 2, "value": 0.1}]
    assert tables["imbalance_trained"] == tables["imbalance_trained_paired"] == []
    paired = tables["noise_trained_paired"]
    table = pd.DataFrame(tables["noise_trained"]).set_index(["variant", "method", "metric"])["value"]
    assert set(table.index.get_level_values("variant")) == {"plain", "cleaned", "corrected", *NETWORKS}
    methods = {m for v, m, _ in table.index if v == "cleaned"}
    assert {"uniform", "distance", "attention", "linear", "attention_forward", "linear_temperature_forward"} <= methods
    assert not any("isotonic" in m for m in methods)
    assert table["cleaned", "distance", "accuracy"] >= table["plain", "distance", "accuracy"]
    assert table["cleaned", "distance_forward", "nll"] < table["cleaned", "distance", "nll"] - 0.1
    assert table["cleaned", "distance_forward", "ece"] < table["cleaned", "distance", "ece"]
    pairs = {(r["variant"], r["method"], r["baseline_variant"], r["baseline"]) for r in paired}
    expected = {("cross_entropy_cleaned", "cnn", "cross_entropy", "cnn")}
    expected |= {("cleaned", m, "plain", m) for m in ("attention", "distance", "linear", "prototypes")}
    expected |= {(s, m, "cross_entropy", "cnn") for s in ("plain", "cleaned") for m in ("attention", "distance")}
    expected |= {("cleaned", m, "cross_entropy_cleaned", "cnn") for m in ("attention", "distance")}
    expected |= {(s, "attention", s, m) for s in ("plain", "cleaned") for m in ("distance", "linear", "prototypes")}
    forward = expected | {("corrected", m, n, "cnn") for m in ("attention", "attention-linear") for n in NETWORKS}
    forward |= {("corrected", m, "corrected", "linear") for m in ("attention", "attention-linear")}
    forward |= {("corrected", "attention", "corrected", "distance")}
    assert pairs == expected | {(v, f"{m}_forward", w, f"{b}_forward") for v, m, w, b in forward}, "both sides alike"
    for row in paired:
        variant, method, metric = (row[name] for name in ("variant", "method", "metric"))
        if variant.endswith("cleaned") and method in ("attention", "cnn") and row["baseline_variant"] == NETWORKS[0]:
            difference = table[variant, method, metric] - table[NETWORKS[0], "cnn", metric]
            assert row["difference"] == pytest.approx(difference)
            assert method == "attention" or abs(difference) > 0.1, "the networks differ"
    corrected = scores["noise_trained"]["noise 0.4"]["corrected"]
    assert corrected["label noise"]["wrong"] == pytest.approx(0.4, abs=0.01)
    assert corrected["label noise"]["right_given"] == pytest.approx(0.6, abs=0.01), "of `plain`, not of `cleaned`"
    assert corrected["attention_forward"]["nll"] == table["corrected", "attention_forward", "nll"]
    by_method = scores["noise_trained"]["noise 0.4"]["cross_entropy"]
    assert set(by_method) == {"cnn", "cnn_temperature"}
    assert by_method["cnn"]["nll"] == table["cross_entropy", "cnn", "nll"]


def test_under_imbalance_every_method_is_corrected_alike(tmp_path: Path) -> None:
    split = with_rare_classes(blobs(600, noise=1.5), 0.1, "long_tail", rng())
    plain = retrieved(embedded(split))
    plain.save(tmp_path / "plain")
    network(plain.embeddings).save(tmp_path / NETWORK)
    scores, tables = compare_trained({"long_tail-0.1": tmp_path}, split.y, SCORING, 0, **SETTINGS)
    scored, paired = tables["imbalance_trained"], tables["imbalance_trained_paired"]
    assert (tuple(scored[0]), tuple(paired[0])) == tuple(COLUMNS.values())[3:]
    assert set(scores["imbalance_trained"]) == {"long tail 0.1"}
    table = pd.DataFrame(scored).set_index(["variant", "method", "metric"])["value"]
    bare = {(v, m) for v, m, _ in table.index if not m.endswith("_prior")}
    assert {(v, f"{m}_prior") for v, m in bare if "_" not in m} <= {(v, m) for v, m, _ in table.index}
    assert {"many", "medium", "few"} <= set(table.index.get_level_values("metric"))
    assert ("attention_prior", "attention") in {(r["method"], r["baseline"]) for r in paired}


def test_fault_10_training_on_noise_never_sees_a_clean_label(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Training data have wrong labels in bank, fit and val, and after cleaning still in fit and val."""
    split, seen, epochs = blobs(300, noise=0.3), [], []

    def fit_and_embed(data: Split, settings: Any, *_: Any, **__: Any) -> tuple[Embeddings, list]:
        seen.append(data)
        epochs.append(settings.epochs)
        network = dataclasses.replace(embedded(data), z=np.full((len(data.y), 2), settings.epochs, np.float32))
        # Plain networks: fewer epochs are better on noisy labels, more on cleaned ones.
        better = settings.epochs if len(seen) > 5 else -settings.epochs
        row = {"epoch": 1.0, "loss": 1.0, "val_accuracy": 0.5 + better / 1000, "val_nll": 1.0}
        return (network if len(seen) > 3 else embedded(data)), [row]

    for module in (fit, train_corrupted):
        monkeypatch.setattr(module, "fit_and_embed", fit_and_embed)
    clean = mock.Mock(side_effect=train_corrupted.clean_labels)
    monkeypatch.setattr(train_corrupted, "clean_labels", clean)
    settings = TrainEmbedder(encoder="mlp", epochs=40)
    search = {"k_max": 20, "sizes": (3, 20), "device": "cpu"}
    train_corrupted.train_on_noise(split, "symmetric", 0.4, settings, 2, 0.5, search, 3, "", tmp_path)
    bank, held = split.rows(BANK), np.concatenate([split.rows(FIT), split.rows(VAL)])
    wrong = [(data.y != split.y) for data in seen]
    assert [w[held].mean() for w in wrong] == [pytest.approx(0.4, abs=0.01)] * 7
    plain, first, second, *alone = (w[bank].mean() for w in wrong)
    assert plain == alone[0] == alone[1] == pytest.approx(0.4, abs=0.01)
    assert alone[2] == alone[3] == second
    full = settings.epochs
    assert epochs == [full // 2] * 3 + [full // 2, full] * 2, "plain networks are tried at both lengths"
    assert max(first, second) < 0.1
    assert not any(w[split.rows(TEST)].any() for w in wrong)
    for call in clean.call_args_list:
        np.testing.assert_array_equal(call.args[1], seen[0].y, "each round votes with the noisy labels")
    rounds = read_json(tmp_path / "cleaning.json")["rounds"]
    assert [row["wrong_after"] for row in rounds] == [pytest.approx(first), pytest.approx(second)]
    for variant, trained_on in (("plain", seen[0]), ("cleaned", seen[2])):
        np.testing.assert_array_equal(EmbeddingSpace.load_whole(tmp_path / variant).embeddings.y, trained_on.y)
    for variant, trained_on, epochs_of in zip(NETWORKS, (seen[3], seen[5]), (full // 2, full), strict=True):
        network = Embeddings.load(tmp_path / variant)
        np.testing.assert_array_equal(network.y, trained_on.y)
        assert network.z[0, 0] == epochs_of, "by validation"

"""The encoder's loop: it learns, it repeats to the byte, it goes on after a kill, and it is blind where it must be."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from attnknn.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.encoders import Encoder, embed
from attnknn.errors import InputError
from attnknn.losses import EncoderLoss
from attnknn.training import best_epoch, knn_score, learning_rate, train_encoder
from data import blobs, pictures

SETTINGS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 16,
    "lr": 0.003,
    "weight_decay": 0.01,
    "warmup": 0.2,
    "grad_clip": 1.0,
    "validate_every": 1,
    "k_val": 5,
    "augment": {"crop": 1, "flip": True, "rotate": 5.0, "jitter": 0.1},
    "mixup": 0.0,
    "lr_factors": {"backbone": 1.0, "projection": 1.0, "knn": 1.0},
    "restarts": {"period": 0, "factor": 1},
    "bf16": False,
    "seed": 3,
}


def train(split: Split, **changes: Any) -> tuple[Encoder, list[dict[str, float]]]:
    torch.manual_seed(0)
    kind, widths = ("convnet", [8, 8]) if split.is_image else ("mlp", [16])
    encoder = Encoder(kind, split.x.shape[1:], 3, widths, 8, dropout=0.1)
    loss = EncoderLoss(3, 8, cross_entropy=1.0, supcon=0.5, proxy_anchor=0.1)
    return encoder, train_encoder(split, encoder, loss, **{**SETTINGS, **changes})


def bytes_of(encoder: Encoder) -> bytes:
    return b"".join(t.numpy().tobytes() for t in encoder.state_dict().values())


def changed(split: Split, part: int) -> Split:
    """The split with every row of one part replaced by noise and shuffled labels."""
    rng = np.random.default_rng(9)
    at = split.part == part
    x, y = np.array(split.x), np.array(split.y)
    x[at] = rng.integers(0, 255, x[at].shape) if split.is_image else 9 * rng.normal(size=x[at].shape)
    y[at] = rng.permutation(y[at])
    return dataclasses.replace(split, x=x, y=y)


@pytest.mark.parametrize("make", [pictures, blobs])
def test_it_overfits_32_rows(make) -> None:
    split = make(62)
    x, y = split.x[split.part == BANK], split.y[split.part == BANK]
    assert len(x) == 32
    # Validated once, at the end: the weights are the last ones.
    encoder, history = train(split, epochs=80, augment={}, batch_size=32, lr=0.01, validate_every=80)
    _, logits = embed(encoder, x)
    assert logits is not None
    assert (logits.argmax(1) == y).all()
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    split = pictures()
    first, second, third = train(split), train(split), train(split, seed=4)
    assert bytes_of(first[0]) == bytes_of(second[0])
    assert first[1] == second[1]
    assert bytes_of(first[0]) != bytes_of(third[0])


@pytest.mark.parametrize("make", [pictures, blobs])
@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(make, after: int, tmp_path: Path) -> None:
    split = make(96)
    whole, history = train(split)
    state = tmp_path / "state.safetensors"
    seen: list[float] = []

    def kill(row: dict[str, float]) -> None:
        seen.append(row["epoch"])
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(split, resume=state, progress=kill)
    resumed, rest = train(split, resume=state, progress=lambda row: seen.append(row["epoch"]))
    assert seen == [1, 2, 3, 4], "an epoch was run twice or left out"
    assert bytes_of(resumed) == bytes_of(whole)
    assert rest == history


def test_the_state_of_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    train(pictures(), resume=state)
    for changes in ({"lr": 0.01}, {"seed": 5}):
        epochs: list[float] = []
        train(pictures(), resume=state, progress=lambda row, e=epochs: e.append(row["epoch"]), **changes)
        assert epochs == [1, 2, 3, 4]
    epochs = []
    train(pictures(seed=1), resume=state, progress=lambda row: epochs.append(row["epoch"]))
    assert epochs == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "change", [{"label_smoothing": 0.4}, {"supcon_temperature": 0.9}, {"proxy_margin": 0.5}, {"proxy_alpha": 8.0}, {}]
)
def test_the_state_of_another_loss_or_start_is_not_gone_on_with(tmp_path: Path, change: dict[str, float]) -> None:
    split, state = pictures(), tmp_path / "state.safetensors"

    def epochs_run(loss_settings: dict[str, float], weights: int) -> list[float]:
        torch.manual_seed(weights)
        encoder = Encoder("convnet", split.x.shape[1:], 3, [8, 8], 8)
        torch.manual_seed(0)
        loss = EncoderLoss(3, 8, cross_entropy=1.0, supcon=0.5, proxy_anchor=0.1, **loss_settings)
        epochs: list[float] = []
        train_encoder(split, encoder, loss, **SETTINGS, resume=state, progress=lambda row: epochs.append(row["epoch"]))
        return epochs

    assert epochs_run({}, 0) == [1, 2, 3, 4]
    assert epochs_run({}, 0) == []
    assert epochs_run(change, 0 if change else 1) == [1, 2, 3, 4]


def test_a_damaged_state_starts_afresh(tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    state.write_bytes(b"half a file")
    assert bytes_of(train(pictures(), resume=state)[0]) == bytes_of(train(pictures())[0])


@pytest.mark.parametrize("part", [FIT, TEST])
@pytest.mark.parametrize("make", [pictures, blobs])
def test_faults_3_and_4_fit_and_test_rows_change_nothing(make, part: int) -> None:
    """Were the best epoch chosen on test, or the encoder trained on the rows that fit the head, bytes would differ."""
    split = make(96)
    assert bytes_of(train(changed(split, part))[0]) == bytes_of(train(split)[0])


def test_validation_rows_choose_the_epoch_and_train_nothing() -> None:
    split = pictures()
    _, history = train(split, epochs=8, lr=0.02)
    _, other_history = train(changed(split, VAL), epochs=8, lr=0.02)
    assert [row["loss"] for row in history] == [row["loss"] for row in other_history]
    assert [row["val_nll"] for row in history] != [row["val_nll"] for row in other_history]


def test_the_weights_are_those_of_the_best_epoch() -> None:
    split = pictures()
    kept: dict[float, bytes] = {}
    encoder, history = train(split, epochs=6, lr=0.02)
    for epochs in range(1, 7):  # the state at each epoch of the same run, by stopping there

        def stop(row: dict[str, float], last: int = epochs) -> None:
            if row["epoch"] == last:
                raise KeyboardInterrupt

        torch.manual_seed(0)
        part = Encoder("convnet", split.x.shape[1:], 3, [8, 8], 8, dropout=0.1)
        loss = EncoderLoss(3, 8, cross_entropy=1.0, supcon=0.5, proxy_anchor=0.1)
        with pytest.raises(KeyboardInterrupt):
            train_encoder(split, part, loss, **{**SETTINGS, "epochs": 6, "lr": 0.02}, progress=stop)
        kept[epochs] = bytes_of(part)
    assert bytes_of(encoder) == kept[best_epoch(history)["epoch"]]


def test_best_epoch_by_accuracy_then_nll_then_time() -> None:
    rows = [
        {"epoch": e, "val_accuracy": a, "val_nll": n}
        for e, a, n in ((1, 0.9, 0.5), (2, math.nan, math.nan), (3, 0.9, 0.4), (4, 0.9, 0.4), (5, 0.8, 0.1))
    ]
    assert best_epoch(rows)["epoch"] == 3


def test_validating_every_few_epochs() -> None:
    _, history = train(pictures(), epochs=5, validate_every=2)
    assert [not math.isnan(row["val_accuracy"]) for row in history] == [False, True, False, True, True]


def test_learning_rate_by_hand() -> None:
    """Ten steps, two of them warm-up: half, whole, then a cosine over eight steps."""
    rates = [learning_rate(step, 10, 0.2, 1.0) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[6] == pytest.approx(0.5)
    assert rates[9] == pytest.approx(0.5 * (1 + math.cos(math.pi * 7 / 8)))


def test_knn_score_against_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(120, 4)).astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    y = rng.integers(3, size=120)

    def weigh(distance: np.ndarray) -> np.ndarray:
        return np.exp(-(distance**2) / 0.1)

    peer = KNeighborsClassifier(7, weights=weigh).fit(z[:80], y[:80])
    probs = 0.99 * peer.predict_proba(z[80:]) + 0.01 * np.bincount(y[:80]) / 80
    accuracy, nll = knn_score(z[:80], y[:80], z[80:], y[80:], 7, 3)
    assert accuracy == (probs.argmax(1) == y[80:]).mean()
    assert nll == pytest.approx(-np.log(probs[np.arange(40), y[80:]]).mean(), rel=1e-4)


def test_a_loss_that_is_no_number_stops_in_one_line() -> None:
    with pytest.raises(InputError, match="lower lr"):
        train(blobs(), lr=1e20, grad_clip=1e20)

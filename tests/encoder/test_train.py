"""The encoder's loop: it learns, it repeats to the byte, it goes on after a kill, and it is blind where it must be."""

import dataclasses
import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.losses import EncoderLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.train import best_epoch, knn_score, mix_rows, train_encoder
from synthetic import blobs, pictures

SETTINGS: dict[str, Any] = {
    "epochs": 4,
    "batch_size": 16,
    "lr": 0.003,
    "weight_decay": 0.01,
    "muon": {"lr": 0.0, "momentum": 0.6},
    "decay": "cosine",
    "warmup": 0.2,
    "look_ahead": 0,
    "grad_clip": 1.0,
    "validate_every": 1,
    "k_val": 5,
    "augment": {"crop": 1, "flip": True, "rotate": 5.0, "jitter": 0.1},
    "mixup": 0.0,
    "lr_factors": {"backbone": 1.0, "projection": 1.0, "knn": 1.0},
    "restarts": {"period": 0, "factor": 1},
    "bf16": False,
    "compile": False,
    "seed": 3,
}


KNN: dict[str, Any] = {"knn": 1.0, "entropy": 0.01, "calibration": 0.1, "k": 5, "hard_weight": 2.0, "momentum": 0.5}


def votes(split: Split, **settings: Any) -> NeighbourLoss:
    return NeighbourLoss(split.y[split.part == BANK], 3, 8, **settings)


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


def test_with_all_that_is_new_off_the_numbers_are_the_old_ones() -> None:
    """Recorded before the loop took a kNN objective, MixUp, learning rates by group, restarts, Muon and look-ahead."""
    losses = [5.913523991902669, 5.29571517308553, 4.850482145945231, 4.567959785461426]
    assert [row["loss"] for row in train(blobs(96))[1]] == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("make", [pictures, blobs])
@pytest.mark.parametrize(("after", "knn", "muon"), [(1, 0, 0), (3, 0, 0), (1, 1, 0), (3, 1, 0), (1, 0, 1), (3, 0, 1)])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(
    make, after: int, knn: int, muon: int, tmp_path: Path
) -> None:
    split = make(96)
    kept: list[NeighbourLoss] = []

    def run(**changes: Any) -> tuple[Encoder, list[dict[str, float]]]:
        if muon:  # three steps an epoch: the slow weights do not come round with the epochs by themselves
            changes |= {"muon": {"lr": 0.1, "momentum": 0.6}, "look_ahead": 2, "decay": "linear"}
        if knn:  # refreshed at the first and third epoch: a resumed second or fourth needs the memory of the state
            kept.append(votes(split, **KNN, refresh=2))
            changes["neighbours"] = kept[-1]
        return train(split, **changes)

    whole, history = run()
    state = tmp_path / "state.safetensors"
    seen: list[float] = []

    def kill(row: dict[str, float]) -> None:
        seen.append(row["epoch"])
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(resume=state, progress=kill)
    resumed, rest = run(resume=state, progress=lambda row: seen.append(row["epoch"]))
    assert seen == [1, 2, 3, 4], "an epoch was run twice or left out"
    assert bytes_of(resumed) == bytes_of(whole)
    assert rest == history
    for name in ("memory", "log_temperature") if knn else ():
        assert torch.equal(getattr(kept[-1], name), getattr(kept[0], name)), name


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


@pytest.mark.parametrize(
    "change",
    [
        *({"k": 7}, {"temperature": 0.2}, {"prior": 0.02}, {"refresh": 2}, {"momentum": 0.9}, {"hard_weight": 1.5}),
        *({"knn": 0.5}, {"entropy": 0.02}, {"calibration": 0.2}, {"label_smoothing": 0.1}, {"bins": 9}),
        {"sharpness": 1.0},
    ],
)
def test_the_state_of_another_knn_objective_is_not_gone_on_with(tmp_path: Path, change: dict[str, float]) -> None:
    split, state = blobs(48), tmp_path / "state.safetensors"
    train(split, epochs=1, resume=state, neighbours=votes(split, **KNN))
    epochs: list[float] = []

    def note(row: dict[str, float]) -> None:
        epochs.append(row["epoch"])

    train(split, epochs=1, resume=state, progress=note, neighbours=votes(split, **KNN))
    assert epochs == []
    train(split, epochs=1, resume=state, progress=note, neighbours=votes(split, **KNN | change))
    assert epochs == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"mixup": 0.4},
        {"restarts": {"period": 1, "factor": 1}},
        {"lr_factors": SETTINGS["lr_factors"] | {"backbone": 0.1}},
        {"muon": {"lr": 0.1, "momentum": 0.6}},
        {"decay": "linear"},
        {"look_ahead": 1},
        {"compile": True},
    ],
)
@pytest.mark.filterwarnings("ignore:compile")
def test_the_state_of_another_loop_is_not_gone_on_with(
    tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")  # to compile takes longer than all of these tests
    split, state, epochs = blobs(48), tmp_path / "state.safetensors", []
    train(split, epochs=1, resume=state)
    train(split, epochs=1, resume=state, progress=lambda row: epochs.append(row["epoch"]), **change)
    assert epochs == [1]


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


def test_an_image_is_mirrored_in_every_other_epoch() -> None:
    """Half of the images in the first, the other half in the second, and so on."""
    split = pictures()
    x = torch.from_numpy(split.x[split.part == BANK])
    torch.manual_seed(0)
    encoder, seen = Encoder("convnet", split.x.shape[1:], 3, [8, 8], 8), []
    encoder.register_forward_pre_hook(lambda m, given: seen.append(given[0].clone()) if m.training else None)
    settings = SETTINGS | {"augment": {"flip": True}, "batch_size": 48, "epochs": 4}
    train_encoder(split, encoder, EncoderLoss(3, 8), **settings)
    mirrored = []
    for views in seen:
        as_is, other = ((views[:, None] == of[None]).flatten(2).all(2).any(0) for of in (x, x.flip(-1)))
        assert (as_is ^ other).all()
        mirrored.append(other)
    assert len(mirrored) == 4
    assert 0 < int(mirrored[0].sum()) < len(x)
    for before, after in itertools.pairwise(mirrored):
        assert torch.equal(after, ~before)


def test_without_a_compiler_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="no-such-compiler"):
        encoder, _ = train(pictures(), compile=True)
    assert bytes_of(encoder) == bytes_of(train(pictures())[0])


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_compiled_training_is_the_same_training() -> None:
    """The convnet in bfloat16, where the compiler's gradient of a maximum was NaN.

    In a process of its own: shapes are not checked at run time there, which a compiler cannot see through.
    """
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[i]) for i in (1, 2)] + [str(Path(__file__).parents[1] / "encoder")]}
import test_train as here
split = here.pictures(96)
for compile in (False, True):
    here.torch.manual_seed(0)
    encoder, loss = here.Encoder("convnet", split.x.shape[1:], 3, [8], 0), here.EncoderLoss(3, 8)
    settings = here.SETTINGS | {{"compile": compile, "bf16": True, "epochs": 2}}
    history = here.train_encoder(split, encoder, loss, **settings)
    print([row["loss"] for row in history])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    eager, made = map(json.loads, told.stdout.splitlines()[-2:])
    assert made == pytest.approx(eager, rel=0.02)
    assert "not compiled" not in told.stderr


def test_the_period_is_in_epochs() -> None:
    _, history = train(blobs(96), warmup=0.0, restarts={"period": 2, "factor": 1})
    rates = [row["lr"] for row in history]
    assert rates[2:] == rates[:2], "the third epoch starts over"
    assert rates[1] < rates[0]


def test_the_first_step_moves_each_group_by_its_own_rate() -> None:
    """AdamW's first step without decay is lr·g/(|g| + 1e-8), which is ± lr wherever there is a gradient to speak of."""
    split = blobs(96)
    torch.manual_seed(0)
    encoder, loss = Encoder("mlp", split.x.shape[1:], 3, [16], 8), EncoderLoss(3, 8)
    neighbours = votes(split, **KNN)
    before = [p.detach().clone() for p in (*encoder.parameters(), *neighbours.parameters())]
    changes = {"epochs": 1, "batch_size": 48, "warmup": 0.0, "weight_decay": 0.0, "lr": 0.01, "grad_clip": 1e9}
    factors = {"backbone": 0.1, "projection": 1.0, "knn": 2.0}
    (row,) = train_encoder(split, encoder, loss, **SETTINGS | changes | {"lr_factors": factors}, neighbours=neighbours)
    assert row["lr"] == 0.01
    after = (*encoder.named_parameters(), *neighbours.named_parameters())
    for old, (name, new) in zip(before, after, strict=True):
        factor = 2.0 if name == "log_temperature" else 0.1 if name.startswith("backbone.") else 1.0
        assert (new - old).abs().max().item() == pytest.approx(factor * 0.01, rel=1e-3), name


# The kNN objective in the loop


@pytest.mark.parametrize("make", [pictures, blobs])
def test_it_overfits_32_rows_with_the_knn_objective_alone(make) -> None:
    """No linear head, no metric loss: the other 31 rows vote for each, and all are right in the end."""
    split = make(62)
    x, y = split.x[split.part == BANK], torch.from_numpy(split.y[split.part == BANK])
    torch.manual_seed(0)
    kind, widths = ("convnet", [8, 8]) if split.is_image else ("mlp", [16])
    encoder = Encoder(kind, split.x.shape[1:], 0, widths, 8)
    loss, neighbours = EncoderLoss(3, 8, cross_entropy=0.0), votes(split, k=9)
    changes = {"epochs": 80, "batch_size": 32, "lr": 0.01, "validate_every": 80, "augment": {}}
    history = train_encoder(split, encoder, loss, **SETTINGS | changes, neighbours=neighbours)
    z = torch.from_numpy(embed(encoder, x)[0])
    neighbours.fill(z)
    near = neighbours.search(z, torch.arange(32)[:, None])
    assert not (near == torch.arange(32)[:, None]).any()
    assert (y[near].mode(1).values == y).all()
    assert history[-1]["loss"] < 0.2 * history[0]["loss"]


@pytest.mark.parametrize("refresh", [1, 2, 5])
def test_the_memory_is_embedded_again_every_few_epochs(refresh: int) -> None:
    """What it holds at the end is what the encoder made of the rows at the start of the last epoch that refreshed."""
    split = blobs(96)
    x = split.x[split.part == BANK]
    torch.manual_seed(0)
    encoder, neighbours = Encoder("mlp", split.x.shape[1:], 3, [16], 8), votes(split, k=5, refresh=refresh)
    made = [embed(encoder, x)[0]]  # at the start of each epoch
    train_encoder(
        split,
        encoder,
        EncoderLoss(3, 8),
        **SETTINGS,
        neighbours=neighbours,
        progress=lambda _: made.append(embed(encoder, x)[0]),
    )
    assert np.array_equal(neighbours.memory.numpy(), made[{1: 3, 2: 2, 5: 0}[refresh]])
    assert not np.array_equal(made[0], made[2])


def test_between_refreshes_the_rows_of_a_batch_are_put_in_where_they_belong() -> None:
    """With m = 0 and one batch of all rows, the memory is what the batch gave, row for row."""
    split = blobs(96)
    neighbours, seen = votes(split, k=5, momentum=0.0), []
    neighbours.register_forward_pre_hook(lambda _, given: seen.append(given))
    train(split, epochs=1, batch_size=48, neighbours=neighbours)
    ((z, rows, _, _, _),) = seen
    assert sorted(rows.tolist()) == list(range(48))
    torch.testing.assert_close(neighbours.memory[rows], z.detach())


# MixUp


def test_mix_rows_by_hand() -> None:
    x = torch.arange(14, dtype=torch.uint8).reshape(7, 2)
    shares = []
    for seed in range(200):
        mixed, partner, share = mix_rows(x, 0.4, torch.Generator().manual_seed(seed))
        shares.append(share)
        assert sorted(partner.tolist()) == list(range(7))
        for row, i in zip(mixed, range(7), strict=True):
            assert row.tolist() == pytest.approx((share * x[i] + (1 - share) * x[partner[i]]).tolist())
    assert 0.5 <= min(shares) < 0.55
    assert 0.95 < max(shares) <= 1
    again = mix_rows(x, 0.4, torch.Generator().manual_seed(199))
    assert torch.equal(again[0], mixed)


def test_fault_11_neighbours_are_looked_up_for_the_mixture_that_is_embedded() -> None:
    """What enters the encoder is λ·x + (1 − λ)·x′, and what it makes of that, with both ids, enters the objective."""
    split = blobs(96)
    x = torch.from_numpy(split.x[split.part == BANK])
    encoder, neighbours = Encoder("mlp", split.x.shape[1:], 3, [16], 8), votes(split, k=5, momentum=0.0)
    embedded: list[Any] = []
    looked_up: list[Any] = []
    encoder.register_forward_hook(lambda m, given, out: embedded.append((given[0], out[0])) if m.training else None)
    neighbours.register_forward_pre_hook(lambda _, given: looked_up.append(given))
    train_encoder(split, encoder, EncoderLoss(3, 8), **SETTINGS | {"mixup": 0.4, "epochs": 1}, neighbours=neighbours)
    assert len(embedded) == len(looked_up) == 3
    for (views, z), (z_looked_up, rows, partners, share, among) in zip(embedded, looked_up, strict=True):
        assert z is z_looked_up
        assert among is None
        assert 0.5 <= share < 1
        torch.testing.assert_close(views, share * x[rows] + (1 - share) * x[partners])
    assert not any((neighbours.memory[rows] == z).all(1).any() for z, rows, *_ in looked_up), "a mixture got in"


def test_mixup_weighs_both_labels_in_every_loss() -> None:
    """The first loss of a run is that of the untrained encoder, so it can be computed again from what went in."""
    split = pictures()
    y = torch.from_numpy(split.y[split.part == BANK])
    torch.manual_seed(0)
    encoder = Encoder("convnet", split.x.shape[1:], 3, [8, 8], 8)
    loss, neighbours = EncoderLoss(3, 8, supcon=0.5), votes(split, k=5)
    terms: list[Any] = []
    neighbours.register_forward_hook(lambda _, given, out: terms.append((*given, out.detach())))
    labels: list[Any] = []
    loss.register_forward_hook(lambda _, given, out: labels.append((given[2], out.detach())))
    changes = {"mixup": 0.4, "epochs": 1, "batch_size": 48}
    (row,) = train_encoder(split, encoder, loss, **SETTINGS | changes, neighbours=neighbours)
    ((_, rows, partners, share, _, votes_loss),) = terms
    (first, value), (second, other_value) = labels
    assert torch.equal(first, y[rows])
    assert torch.equal(second, y[partners])
    assert row["loss"] == pytest.approx((share * value + (1 - share) * other_value + votes_loss).item(), rel=1e-6)


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

"""The encoder's training loop: it learns, is reproducible and resumable, and reads only the rows it may."""

import dataclasses
import functools
import itertools
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.losses import EncoderLoss, ViewsLoss
from attnknn.encoder.neighbour_loss import NeighbourLoss
from attnknn.encoder.train import best_epoch, knn_score, mix_rows, train_encoder
from synthetic import blobs, pictures

SETTINGS: dict[str, Any] = {"epochs": 4, "batch_size": 16, "lr": 0.003, "weight_decay": 0.01, "warmup": 0.2, "k_val": 5}
SETTINGS |= {"muon": {"lr": 0.0, "momentum": 0.6}, "decay": "cosine"}
SETTINGS |= {"augment": {"crop": 1, "flip": True, "rotate": 5.0, "jitter": 0.1}}
KNN: dict[str, Any] = {"knn": 1.0, "entropy": 0.01, "calibration": 0.1, "k": 5, "hard_weight": 2.0}
# Validated once, at the end: the weights are the last ones.
OVERFIT: dict[str, Any] = {"epochs": 80, "batch_size": 32, "lr": 0.01, "validate_every": 80, "augment": {}}
Row = dict[str, float]


def knn_loss(split: Split, **settings: Any) -> NeighbourLoss:
    return NeighbourLoss(split.y[split.part == BANK], 3, 8, **settings)


def network(split: Split, n_classes: int = 3, dropout: float = 0.0) -> Encoder:
    torch.manual_seed(0)
    kind, widths = ("convnet", [8, 8]) if split.is_image else ("mlp", [16])
    return Encoder(kind, split.x.shape[1:], n_classes, widths, 8, dropout=dropout)


def train(
    split: Split, encoder: Encoder | None = None, loss: Any = None, seed: int = 3, **changes: Any
) -> tuple[Encoder, list[Row]]:
    encoder = encoder or network(split, dropout=0.1)
    loss = loss or EncoderLoss(3, 8, cross_entropy=1.0, supcon=0.5, proxy_anchor=0.1)
    options = {name: changes.pop(name, None) for name in ("neighbours", "resume", "progress")}
    return encoder, train_encoder(split, encoder, loss, TrainEmbedder(**SETTINGS | changes), seed=seed, **options)


def bytes_of(encoder: Encoder) -> bytes:
    return b"".join(t.numpy().tobytes() for t in encoder.state_dict().values())


def changed(split: Split, part: int) -> Split:
    """The split with every row of one part replaced by noise and shuffled labels."""
    rng = np.random.default_rng(9)
    mask = split.part == part
    x, y = np.array(split.x), np.array(split.y)
    x[mask] = rng.integers(0, 255, x[mask].shape) if split.is_image else 9 * rng.normal(size=x[mask].shape)
    y[mask] = rng.permutation(y[mask])
    return dataclasses.replace(split, x=x, y=y)


@functools.cache
def reference(make: Callable[[int], Split]) -> tuple[Encoder, list[Row]]:
    """What the default settings make of 96 rows; not to be changed."""
    return train(make(96))


@pytest.mark.parametrize(("make", "muon"), [(pictures, 0.0), (pictures, 0.1), (blobs, 0.0)])
def test_it_overfits_32_rows(make, muon: float) -> None:
    split = make(62)
    x, y = split.x[split.part == BANK], split.y[split.part == BANK]
    assert len(x) == 32
    encoder, history = train(split, **OVERFIT, muon={"lr": muon})
    assert (embed(encoder, x)[1].argmax(1) == y).all()
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert encoder.mean.any() == split.is_image, "tables come standardised"


def test_the_seed_decides_and_a_damaged_checkpoint_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "state.safetensors").write_bytes(b"half a file")
    (first, history), (again, other) = reference(pictures), train(pictures(), resume=tmp_path / "state.safetensors")
    assert (bytes_of(again), other) == (bytes_of(first), history)
    assert bytes_of(train(pictures(), seed=4)[0]) != bytes_of(first)


@pytest.mark.parametrize("make", [pictures, blobs])
@pytest.mark.parametrize(("after", "knn", "muon"), [(1, 0, 0), (3, 0, 0), (1, 1, 0), (3, 1, 0), (1, 0, 1), (3, 0, 1)])
def test_a_resumed_run_ends_with_the_same_bytes(make, after: int, knn: int, muon: int, tmp_path: Path) -> None:
    split = make(96)
    kept, seen, state = [], [], tmp_path / "state.safetensors"

    def run(**changes: Any) -> tuple[Encoder, list[dict[str, float]]]:
        if muon:
            changes |= {"muon": {"lr": 0.1, "momentum": 0.6}, "decay": "linear"}
        if knn:
            kept.append(knn_loss(split, **KNN))
            changes["neighbours"] = kept[-1]
        return train(split, **changes)

    whole, history = run()

    def kill(row: Row) -> None:
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


@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize(
    "change",
    [
        *({"seed": 5}, {"weights": 1}, {"data": 1}),
        *({"loss": {"label_smoothing": 0.4}}, {"loss": {"supcon_temperature": 0.9}}, {"loss": {"proxy_margin": 0.5}}),
        *({"loss": {"proxy_alpha": 8.0}}, {"knn": {"k": 7}}, {"knn": {"temperature": 0.2}}, {"knn": {"prior": 0.02}}),
        *({"knn": {"hard_weight": 1.5}}, {"knn": {"knn": 0.5}}),
        *({"knn": {"entropy": 0.02}}, {"knn": {"calibration": 0.2}}, {"knn": {"label_smoothing": 0.1}}),
        *({"lr": 0.01}, {"mixup": 0.4}, {"decay": "linear"}),
        *({"restarts": {"period": 1, "factor": 1}}, {"lr_factors": {"backbone": 0.1}}),
        *({"muon": {"lr": 0.1, "momentum": 0.6}}, {"compile": True}),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_ignored(change: dict[str, Any], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")  # compiling would take longer than all of these tests

    def epochs_run(weights: int = 0, data: int = 0, loss: Any = None, knn: Any = None, **changes: Any) -> list[float]:
        split, epochs = blobs(48, seed=data), []
        torch.manual_seed(weights)
        encoder = Encoder("mlp", (7,), 3, [16], 8)
        torch.manual_seed(0)
        terms = EncoderLoss(3, 8, cross_entropy=1.0, supcon=0.5, proxy_anchor=0.1, **loss or {})
        neighbours = None if knn is None else knn_loss(split, **KNN | knn)
        options = {"neighbours": neighbours, "resume": tmp_path / "state"}
        train(split, encoder, terms, **options, progress=lambda row: epochs.append(row["epoch"]), epochs=1, **changes)
        return epochs

    unchanged = {"knn": {}} if "knn" in change else {}
    assert epochs_run(**unchanged) == [1]
    assert epochs_run(**unchanged) == []
    assert epochs_run(**change) == [1]


@pytest.mark.parametrize("make", [pictures, blobs])
def test_faults_3_and_4_fit_and_test_rows_change_nothing_and_validation_rows_only_the_epoch(make) -> None:
    """Were the best epoch chosen on test, or the encoder trained on the rows that fit the head, bytes would differ."""
    encoder, history = reference(make)
    for part in (FIT, TEST):
        assert bytes_of(train(changed(make(96), part))[0]) == bytes_of(encoder)
    _, other = train(changed(make(96), VAL))
    assert [row["loss"] for row in history] == [row["loss"] for row in other]
    assert [row["val_nll"] for row in history] != [row["val_nll"] for row in other]


def test_the_weights_are_those_of_the_best_epoch() -> None:
    split = pictures()
    encoder, history = train(split, epochs=6, lr=0.02)

    def stop(row: Row) -> None:
        if row["epoch"] == best_epoch(history)["epoch"]:
            raise KeyboardInterrupt

    stopped = network(split, dropout=0.1)
    with pytest.raises(KeyboardInterrupt):
        train(split, stopped, epochs=6, lr=0.02, progress=stop)
    assert bytes_of(encoder) == bytes_of(stopped)
    assert best_epoch(history)["epoch"] < 6


def test_best_epoch_by_accuracy_then_nll_then_time() -> None:
    scores = [(0.9, 0.5), (math.nan, math.nan), (0.9, 0.4), (0.9, 0.4), (0.8, 0.1)]
    rows = [{"epoch": i, "val_accuracy": a, "val_nll": n} for i, (a, n) in enumerate(scores, 1)]
    assert best_epoch(rows)["epoch"] == 3


def test_validation_and_restarts_are_counted_in_epochs() -> None:
    _, history = train(blobs(96), epochs=5, validate_every=2, warmup=0.0, restarts={"period": 2, "factor": 1})
    assert [row["epoch"] for row in history if not math.isnan(row["val_accuracy"])] == [2, 4, 5]
    rates = [row["lr"] for row in history]
    assert rates[2:4] == rates[:2], "the third epoch starts over"
    assert rates[1] < rates[0]


def test_an_image_is_mirrored_in_every_other_epoch() -> None:
    """Half of the images in the first, the other half in the second, and so on."""
    split = pictures()
    x = torch.from_numpy(split.x[split.part == BANK])
    encoder, batches, mirrored = network(split), [], []
    encoder.register_forward_pre_hook(lambda m, args: batches.append(args[0].clone()) if m.training else None)
    train(split, encoder, EncoderLoss(3, 8), augment={"flip": True}, batch_size=48)
    for views in batches:
        as_is, other = ((views[:, None] == side[None]).flatten(2).all(2).any(0) for side in (x, x.flip(-1)))
        assert (as_is ^ other).all()
        mirrored.append(other)
    assert len(mirrored) == 4
    assert 0 < int(mirrored[0].sum()) < len(x)
    for before, after in itertools.pairwise(mirrored):
        assert torch.equal(after, ~before)


def test_images_are_smaller_in_the_first_share_of_the_epochs() -> None:
    """As PIL shrinks them, in training alone."""
    split, batches, shown = pictures(), [], []
    encoder = network(split)
    encoder.register_forward_pre_hook(lambda m, args: (batches if m.training else shown).append(args[0].clone()))
    train(split, encoder, EncoderLoss(3, 8), augment={}, batch_size=48, shrunk=0.5)
    side = split.x.shape[2]
    assert [batch.shape[2] for batch in batches] == [side * 3 // 4] * 2 + [side] * 2
    assert {x.shape[2] for x in shown} == {side}
    order = torch.randperm(48, generator=torch.Generator().manual_seed(3 * 100_003))
    first = split.x[split.part == BANK][order[0], 0]
    expected = np.asarray(Image.fromarray(first).resize((side * 3 // 4,) * 2, Image.Resampling.BILINEAR))
    np.testing.assert_allclose(batches[0][0, 0].numpy(), expected, atol=1)
    for size in (2, 3, 8, 9, 11, 12):
        split, widths = pictures(size=max(size, 8)), [4, 4, 4]
        split = dataclasses.replace(split, x=split.x[:, :, :size, :size])
        convnet = Encoder("convnet", split.x.shape[1:], 3, widths, 0)
        refused = pytest.raises(InputError, match=rf"shrunk: 3/4 of {size} pixels are too few for this network")
        with refused if size in (2, 9, 11) else nullcontext():
            train(split, convnet, EncoderLoss(3, 4), shrunk=0.5, epochs=1)
    with pytest.raises(ValueError, match="pretrained: true is of resnet18 and resnet50, not convnet"):
        TrainEmbedder(pretrained=True)
    with pytest.raises(ValueError, match=r"shrunk: 0\.5; the vit has a position for each patch; set it to 0"):
        TrainEmbedder(encoder="vit", shrunk=0.5)


def test_a_batch_without_labels_is_two_views_of_each_image() -> None:
    """Each is flipped or not by itself, and the images' numbers take the place of the labels."""
    split, batches, images = pictures(), [], []
    encoder, loss = network(split), ViewsLoss(0.5)
    x = torch.from_numpy(split.x[split.part == BANK])
    encoder.register_forward_pre_hook(lambda m, args: batches.append(args[0].clone()) if m.training else None)
    loss.register_forward_hook(lambda _, args, out: images.append(args[2]))
    train(split, encoder, loss, augment={"flip": True}, batch_size=24)
    assert len(batches) == 4 * 2
    pairs = set()
    for views, image in zip(batches, images, strict=True):
        assert torch.equal(image[:24], image[24:])
        mirrored = (views != x[image]).flatten(1).any(1)
        assert torch.equal(views, torch.where(mirrored[:, None, None, None], x[image].flip(-1), x[image]))
        pairs |= set(zip(mirrored[:24].tolist(), mirrored[24:].tolist(), strict=True))
    assert len(pairs) == 4
    assert sorted(torch.cat([images[0][:24], images[1][:24]]).tolist()) == list(range(48))


def test_without_a_compiler_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="no-such-compiler"):
        encoder, _ = train(pictures(), compile=True)
    assert bytes_of(encoder) == bytes_of(reference(pictures)[0])


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_compiled_training_is_the_same_training() -> None:
    """The convnet in bfloat16, where the compiler's gradient of a maximum was NaN.

    In a process of its own: shapes are not checked at run time there, which a compiler cannot see through.
    """
    code = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[i]) for i in (1, 2)] + [str(Path(__file__).parents[1] / "encoder")]}
import test_train
split = test_train.pictures(96)
for compile in (False, True):
    test_train.torch.manual_seed(0)
    encoder = test_train.Encoder("convnet", split.x.shape[1:], 3, [8], 0)
    _, history = test_train.train(split, encoder, test_train.EncoderLoss(3, 8), compile=compile, bf16=True, epochs=2)
    print([row["loss"] for row in history])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    eager, compiled = map(json.loads, run.stdout.splitlines()[-2:])
    assert compiled == pytest.approx(eager, rel=0.02)
    assert "not compiled" not in run.stderr


def test_the_first_step_moves_each_group_by_its_own_rate() -> None:
    """AdamW's first step without decay is lr·g/(|g| + 1e-8), which is ± lr wherever there is a gradient to speak of."""
    split = blobs(96)
    encoder, neighbours = network(split), knn_loss(split, **KNN)
    before = [p.detach().clone() for p in (*encoder.parameters(), *neighbours.parameters())]
    changes: dict[str, Any] = {"epochs": 1, "batch_size": 48, "warmup": 0.0, "weight_decay": 0.0, "grad_clip": 1e9}
    changes |= {"lr": 0.01, "lr_factors": {"backbone": 0.1, "projection": 1.0, "knn": 2.0}}
    _, (row,) = train(split, encoder, EncoderLoss(3, 8), neighbours=neighbours, **changes)
    assert row["lr"] == 0.01
    after = (*encoder.named_parameters(), *neighbours.named_parameters())
    for old, (name, new) in zip(before, after, strict=True):
        factor = 2.0 if name == "log_temperature" else 0.1 if name.startswith("backbone.") else 1.0
        assert (new - old).abs().max().item() == pytest.approx(factor * 0.01, rel=1e-3), name


@pytest.mark.parametrize("make", [pictures, blobs])
def test_it_overfits_32_rows_with_the_knn_objective_alone(make) -> None:
    """No linear head, no metric loss: the other 31 rows vote for each, and all are right in the end."""
    split = make(62)
    x, y = split.x[split.part == BANK], torch.from_numpy(split.y[split.part == BANK])
    encoder, loss, neighbours = network(split, 0), EncoderLoss(3, 8, cross_entropy=0.0), knn_loss(split, k=9)
    _, history = train(split, encoder, loss, neighbours=neighbours, **OVERFIT)
    z = torch.from_numpy(embed(encoder, x)[0])
    neighbours.fill(z)
    ids = neighbours.search(z, torch.arange(32)[:, None])
    assert not (ids == torch.arange(32)[:, None]).any()
    assert (y[ids].mode(1).values == y).all()
    assert history[-1]["loss"] < 0.2 * history[0]["loss"]


def test_the_memory_is_embedded_again_in_every_epoch() -> None:
    """What it holds at the end is what the encoder made of the rows at the start of the last epoch."""
    split = blobs(96)
    x = split.x[split.part == BANK]
    encoder, neighbours = network(split), knn_loss(split, k=5)
    z = [embed(encoder, x)[0]]  # at the start of each epoch
    options = {"neighbours": neighbours, "progress": lambda _: z.append(embed(encoder, x)[0])}
    train(split, encoder, EncoderLoss(3, 8), **options)
    assert np.array_equal(neighbours.memory.numpy(), z[3])
    assert not np.array_equal(z[2], z[3])


def test_mix_rows_by_hand() -> None:
    x = torch.arange(14, dtype=torch.uint8).reshape(7, 2)
    shares = []
    for seed in range(200):
        mixed, partner, share = mix_rows(x, 0.4, torch.Generator().manual_seed(seed))
        shares.append(share)
        assert sorted(partner.tolist()) == list(range(7))
        torch.testing.assert_close(mixed, share * x + (1 - share) * x[partner], rtol=1e-6, atol=0)
    assert 0.5 <= min(shares) < 0.55
    assert 0.95 < max(shares) <= 1
    again = mix_rows(x, 0.4, torch.Generator().manual_seed(199))
    assert torch.equal(again[0], mixed)


def test_fault_11_mixtures_are_looked_up_and_weigh_both_labels_in_every_loss() -> None:
    """λ·x + (1 − λ)·x′ enters the encoder, and what it makes of that, with both ids, enters the kNN objective.

    The first loss of a run is that of the untrained encoder, so it can be computed again from what went in.
    """
    split = pictures()
    x, y = (torch.from_numpy(values[split.part == BANK]) for values in (split.x, split.y))
    encoder, loss, neighbours = network(split), EncoderLoss(3, 8, supcon=0.5), knn_loss(split, k=5)
    embedded, votes, labels = [], [], []
    encoder.register_forward_hook(lambda m, args, out: embedded.append((args[0], out[0])) if m.training else None)
    neighbours.register_forward_hook(lambda _, args, out: votes.append((*args, out.detach())))
    loss.register_forward_hook(lambda _, args, out: labels.append((args[2], out.detach())))
    options: dict[str, Any] = {"mixup": 0.4, "epochs": 1, "batch_size": 48, "augment": {}}
    _, (row,) = train(split, encoder, loss, neighbours=neighbours, **options)
    ((views, z),), ((query, rows, partners, share, candidates, votes_loss),) = embedded, votes
    assert z is query
    assert candidates is None
    assert 0.5 <= share < 1
    torch.testing.assert_close(views, share * x[rows] + (1 - share) * x[partners])
    (first, value), (second, other_value) = labels
    assert torch.equal(first, y[rows])
    assert torch.equal(second, y[partners])
    assert row["loss"] == pytest.approx((share * value + (1 - share) * other_value + votes_loss).item(), rel=1e-6)


def test_knn_score_against_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(120, 4)).astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    y = rng.integers(3, size=120)
    peer = KNeighborsClassifier(7, weights=lambda distance: np.exp(-(distance**2) / 0.1)).fit(z[:80], y[:80])
    probs = 0.99 * peer.predict_proba(z[80:]) + 0.01 * np.bincount(y[:80]) / 80
    accuracy, nll = knn_score(z[:80], y[:80], z[80:], y[80:], 7, 3)
    assert accuracy == (probs.argmax(1) == y[80:]).mean()
    assert nll == pytest.approx(-np.log(probs[np.arange(40), y[80:]]).mean(), rel=1e-4)


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(InputError, match="lower lr"):
        train(blobs(), lr=1e20, grad_clip=1e20)

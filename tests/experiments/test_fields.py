"""Neural fields: contexts, network, losses and training loop, against hand-computed values."""

import math
from unittest import mock

import pytest
import torch
from torch.optim import Muon

from attnknn.core.errors import InputError
from attnknn.experiments.fields.config import FieldSize, TrainField
from attnknn.experiments.fields.contexts import context_size, fill_nearest, gather_pixels, pixel_values, sample_pixels
from attnknn.experiments.fields.latents import encode_images, psnr, reconstruction_error
from attnknn.experiments.fields.perceiver import (
    Attend,
    Field,
    FieldConfig,
    fourier_features,
    gaussian_frequencies,
    grid,
)
from attnknn.experiments.fields.train import info_nce, train_field
from attnknn.nn.augment import random_crop
from attnknn.nn.optim import StackedMuon, orthogonalise

H, W, C, B = 5, 7, 3, 11


def field(**changed: object) -> Field:
    torch.manual_seed(0)
    sizes = {"height": H, "width": W, "channels": C, "frequencies": 6, "scale": 1.0, "dims": (8, 12), "latents": 5}
    return Field(FieldConfig(**{**sizes, "heads": 4, "depth": 1, "seed": 0, **changed})).eval()  # type: ignore[arg-type]


def pictures(n: int = B, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, C, H, W), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def test_coordinates_and_fourier_features_by_hand_and_of_constant_norm() -> None:
    assert grid(2, 3).tolist() == [[-1, -1], [-1, 0], [-1, 1], [1, -1], [1, 0], [1, 1]]
    assert grid(1, 1).tolist() == [[0, 0]]
    frequencies = torch.tensor([[0.25, 1.0], [0.0, 0.5]])
    features = fourier_features(torch.tensor([[1.0, 0.5]]), frequencies)  # phases π/2 and 2.5π
    torch.testing.assert_close(features, torch.tensor([[1.0, 1.0, 0.0, 0.0]]), atol=1e-6, rtol=0)
    many = fourier_features(grid(H, W), gaussian_frequencies(6, 15.0, 0))
    torch.testing.assert_close(many.square().sum(1), torch.full((H * W,), 6.0))
    frequencies = gaussian_frequencies(20_000, 3.0, seed=1)
    assert frequencies.std().item() == pytest.approx(3, rel=0.02)
    positions = field(scale=3.0, frequencies=6, seed=8).positions
    torch.testing.assert_close(positions, fourier_features(grid(H, W), gaussian_frequencies(6, 3.0, 8)))


def attend_reference(block: Attend, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """Reference implementation of `Attend`, head by head."""
    keys_values = block.norm_context(context) @ block.key_value.weight.T
    q, k, v = (block.norm(x) @ block.query.weight.T, *keys_values.chunk(2, -1))
    size = x.shape[-1] // block.heads
    heads = zip(*(part.split(size, -1) for part in (q, k, v)), strict=True)
    mixed = [(qh @ kh.mT / size**0.5).softmax(-1) @ vh for qh, kh, vh in heads]
    x = x + torch.cat(mixed, -1) @ block.out.weight.T + block.out.bias
    norm, wide, _, narrow = block.feed_forward
    return x + narrow(torch.nn.functional.gelu(wide(norm(x))))


def test_field_matches_the_reference_implementation() -> None:
    """With every parameter moved away from its initial value."""
    net = field()
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p += 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
    values = pixel_values(pictures())
    idx = sample_pixels("image", B, H * W, 9, torch.Generator().manual_seed(2))
    positions = net.positions @ net.position_embedding.weight.T
    embed = net.value_embedding
    context = (2 * gather_pixels(values, idx) - 1) @ embed.weight.T + embed.bias + positions[idx]
    x = net.latents.expand(B, -1, -1)
    for stage, (cross, (attend,)) in enumerate(zip(net.cross_attention, net.self_attention, strict=True)):
        x = attend_reference(cross, net.projections[stage - 1](x) if stage else x, context)
        x = attend_reference(attend, x, x)
    torch.testing.assert_close(net.encode(gather_pixels(values, idx), idx), x, atol=1e-4, rtol=1e-4)
    answer = attend_reference(net.query_attention, net.queries(net.positions).expand(B, -1, -1), x)
    torch.testing.assert_close(net.decode(x), 0.5 + 0.5 * net.values(answer), atol=1e-4, rtol=1e-4)


def test_latents_do_not_depend_on_the_order_of_pixels_batch_size_or_training_mode() -> None:
    net, values = field(), pixel_values(pictures())
    idx = sample_pixels("image", B, H * W, 13, torch.Generator().manual_seed(2))
    order = torch.randperm(13, generator=torch.Generator().manual_seed(3))
    context, shuffled = gather_pixels(values, idx), gather_pixels(values, idx[:, order])
    one, other = net.encode(context, idx), net.encode(shuffled, idx[:, order])
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    assert not torch.allclose(one, net.encode(shuffled, idx), atol=1e-3), "but the pixel indices do"
    net, x = field().train(), pictures().numpy()
    idx = sample_pixels("image", B, H * W, 9, torch.Generator().manual_seed(9))
    one, parts = encode_images(net, x, idx, "cpu"), encode_images(net, x, idx, "cpu", batch_size=3)
    torch.testing.assert_close(one, parts, atol=1e-6, rtol=0)
    assert net.training


def test_contexts_are_distinct_shared_or_not_and_of_the_size() -> None:
    generator = torch.Generator().manual_seed(5)
    own, shared = (sample_pixels(sampler, B, H * W, 9, generator) for sampler in ("image", "batch"))
    full = torch.arange(H * W).expand(B, -1)
    for sampler in ("full", "image", "batch"):
        assert torch.equal(sample_pixels(sampler, B, H * W, H * W, generator), full)
    for idx in (own, shared):
        assert idx.shape == (B, 9)
        assert (idx.diff(dim=1) > 0).all()
        assert idx.min() >= 0
        assert idx.max() < H * W
    assert (shared == shared[0]).all()
    assert len({tuple(row) for row in own.tolist()}) == B
    sizes = {(1024, 0.2, 64): 204, (64, 0.2, 64): 64, (64, 0.2, 8): 12, (10, 0.29, 1): 2, (5, 0.1, 9): 5}
    assert {args: context_size(*args) for args in sizes} == sizes


def test_fill_nearest_and_psnr_by_hand() -> None:
    values = torch.arange(6.0).reshape(1, 6, 1)  # of a 2 × 3 image
    idx = torch.tensor([[0, 5]])
    # Squared distances to 0 and 5: of pixel 1 they are 1 and 2, of 2 they are 4 and 1, of 3 and 4 the other way round.
    assert fill_nearest(values, idx, 2, 3).flatten().tolist() == [0, 0, 5, 0, 5, 5]
    tie = torch.arange(3.0).reshape(1, 3, 1)
    assert fill_nearest(tie, torch.tensor([[0, 2]]), 1, 3).flatten().tolist() == [0, 0, 2], "ties to the lower index"
    full = sample_pixels("full", 1, 6, 6, torch.Generator())
    torch.testing.assert_close(fill_nearest(values, full, 2, 3), values)
    assert psnr(0.01) == pytest.approx(20)
    assert psnr(1.0) == 0
    assert psnr(0.0) == 120


def test_info_nce_matches_its_definition() -> None:
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randn(5, 4, generator=generator) for _ in range(2))
    cos = [[float(x @ y / x.norm() / y.norm()) / 0.2 for y in b] for x in a]
    rows = [-cos[i][i] + math.log(sum(math.exp(c) for c in cos[i])) for i in range(5)]
    columns = [-cos[i][i] + math.log(sum(math.exp(cos[j][i]) for j in range(5))) for i in range(5)]
    assert info_nce(a, b, 0.2).item() == pytest.approx((sum(rows) + sum(columns)) / 10, abs=1e-5)
    assert info_nce(torch.ones(5, 4), torch.ones(5, 4), 0.2).item() == pytest.approx(math.log(5))


SETTINGS = {
    "share": 0.3, "least": 4, "batch_size": 8, "lr": 3e-3, "muon": 0.01, "warmup": 0.1, "grad_clip": 1.0, "decoded": 0,
    "temperature": 0.1, "augment": {"flip": False, "crop": 0, "jitter": 0.0, "rotate": 0.0, "cutout": 0},
    "bf16": False, "compile": False, "seed": 0, "views": True,
}  # fmt: skip


def test_a_field_overfits_32_images() -> None:
    net = field(dims=(32, 64), latents=16, frequencies=16)
    x = pictures(32).numpy()
    settings = {**SETTINGS, "batch_size": 32, "epochs": 180, "views": False, "contrast_weight": 0.0, "sampler": "full"}
    train_field(net, x, x[:4], **settings)
    idx = sample_pixels("full", 32, H * W, 1, torch.Generator())
    assert psnr(reconstruction_error(net, x, idx, "cpu")) >= 30


def reference_training(net: Field, x: torch.Tensor, s: dict) -> None:
    """Reference implementation of `train_field` with sampler `image`, in plain torch."""
    net.train()
    matrices = net.matrices()
    others = [p for p in net.parameters() if not any(p is matrix for matrix in matrices)]
    adam = torch.optim.AdamW(others, betas=(0.9, 0.99), weight_decay=0.0)
    optimisers = [adam, StackedMuon(matrices, lr=1.0)]  # torch's multiplies in bfloat16; see the test of both
    steps = len(x) // s["batch_size"]
    total, rising = s["epochs"] * steps, round(s["warmup"] * s["epochs"] * steps)
    pixels, points = H * W, int(s["share"] * H * W)

    def view(images: torch.Tensor, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if s["views"]:
            flipped = torch.rand(len(images), generator=g) < 0.5
            images = random_crop(images, s["augment"]["crop"], g)
            images = torch.stack([one.flip(-1) if flip else one for one, flip in zip(images, flipped, strict=True)])
        values = pixel_values(images)
        idx = torch.rand(len(images), pixels, generator=g).topk(points).indices.sort().values
        return values, idx, torch.stack([image[i] for image, i in zip(values, idx, strict=True)])

    for step in range(total):
        epoch, i = divmod(step, steps)
        if i == 0:
            g = torch.Generator().manual_seed(s["seed"] * 100_003 + epoch)
            order = torch.randperm(len(x), generator=g)
        images = x[order[i * s["batch_size"] : (i + 1) * s["batch_size"]]]
        progress = (step - rising) / (total - rising)
        factor = (step + 1) / rising if step < rising else 0.5 + 0.5 * math.cos(math.pi * progress)
        for optimiser, peak in zip(optimisers, (s["lr"], s["muon"]), strict=True):
            optimiser.param_groups[0]["lr"] = peak * factor
        values, idx, context = view(images, g)
        query = torch.randperm(pixels, generator=g)[: s["decoded"]]
        latents = net.encode(context, idx)
        loss = (net.decode(latents, None)[:, query] - values[:, query]).square().mean()
        if s["views"]:
            _, other_idx, other = view(images, g)
        if s["contrast_weight"]:
            a, b = (torch.nn.functional.normalize(z.mean(1)) for z in (latents, net.encode(other, other_idx)))
            cosines = a @ b.T / s["temperature"]
            contrast = -(cosines.log_softmax(1) + cosines.T.log_softmax(1)).diagonal().mean() / 2
            loss = loss + s["contrast_weight"] * contrast
        net.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), s["grad_clip"])
        assert norm > s["grad_clip"], "or clipping is not tested"
        for optimiser in optimisers:
            optimiser.step()


@pytest.mark.parametrize(("views", "weight"), [(False, 0.0), (True, 0.0), (True, 0.5)])
def test_training_matches_the_reference_loop(views: bool, weight: float) -> None:
    """Rates, warm-up, clipping, views, contexts, decoded pixels, temperature: each matters more."""
    s = {**SETTINGS, "batch_size": 5, "epochs": 2, "lr": 0.01, "muon": 0.02, "warmup": 0.5, "grad_clip": 0.01}
    s |= {"decoded": 9, "temperature": 0.5, "views": views, "contrast_weight": weight, "sampler": "image"}
    s["augment"] = {**s["augment"], "flip": True, "crop": 1}
    x, (ours, expected) = pictures(), (field() for _ in range(2))
    train_field(ours, x.numpy(), x[:3].numpy(), **s)
    reference_training(expected, x, s)
    for (name, one), other in zip(ours.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=0, msg=lambda text, name=name: f"{name}: {text}")
    moved = zip(ours.parameters(), field().parameters(), strict=True)
    assert max(float((one - start).detach().abs().max()) for one, start in moved) > 0.02


def test_two_threads_give_the_same_bytes_each_time() -> None:
    x, sums = pictures(256).numpy(), []
    settings = SETTINGS | {"batch_size": 128, "epochs": 1, "contrast_weight": 0.1, "sampler": "image"}
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(2):
            net = field(dims=(32, 64))
            train_field(net, x, x[:8], **settings)
            sums.append(sum(p.detach().double().sum().item() for p in net.parameters()))
    finally:
        torch.set_num_threads(threads)
    assert len(set(sums)) == 1


def test_invalid_heads_and_a_loss_that_is_not_finite_are_errors() -> None:
    settings = {**SETTINGS, "epochs": 1, "batch_size": B, "lr": 1e30, "muon": 1e30, "warmup": 0.0}
    settings |= {"contrast_weight": 0.0, "sampler": "full"}
    with pytest.raises(InputError, match=r"validation MSE nan; lower train_field\.sizes\.\*\.lr"):
        train_field(field(), pictures().numpy(), pictures().numpy(), **settings)
    size = TrainField().sizes["small"].model_dump() | {"heads": 5}
    with pytest.raises(ValueError, match=r"heads: 5 do not divide dims \[32, 64\]; give a number"):
        FieldSize(**size)


def test_the_reconstruction_error_leaves_out_the_context() -> None:
    """Only pixels outside the context count, for a field that decodes grey everywhere."""
    net, x = field(), pictures().numpy()
    with torch.no_grad():
        for parameter in net.values.parameters():
            parameter.zero_()
    idx = sample_pixels("image", B, H * W, 9, torch.Generator().manual_seed(8))
    values = pixel_values(torch.from_numpy(x))
    hidden = torch.ones(B, H * W).scatter_(1, idx, 0.0).bool()
    expected = (values[hidden] - 0.5).square().mean().item()
    assert reconstruction_error(net, x, idx, "cpu", batch_size=4) == pytest.approx(expected, rel=1e-5)


def test_training_is_deterministic_and_resumes_to_the_same_bytes(tmp_path) -> None:
    x, states = pictures(20).numpy(), []
    settings = {**SETTINGS, "epochs": 3, "contrast_weight": 0.5, "sampler": "image"}

    for resume in (None, tmp_path / "state"):
        net = field()
        if resume:
            kill = mock.Mock(side_effect=[None, InterruptedError])  # after the second epoch
            with pytest.raises(InterruptedError):
                train_field(net, x, x[:4], **settings, resume=resume, progress=kill)
            net = field()
        history = train_field(net, x, x[:4], **settings, resume=resume)
        assert [row["epoch"] for row in history] == [1, 2, 3]
        states.append(net.state_dict())
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name


@pytest.mark.parametrize(
    "changed", [{"lr": 2e-3}, {"temperature": 0.2}, {"share": 0.5}, {"x_val": pictures(5).numpy()}]
)
def test_a_checkpoint_of_other_settings_or_rows_is_not_resumed(changed: dict, tmp_path) -> None:
    x, settings = pictures(20).numpy(), {**SETTINGS, "epochs": 1, "contrast_weight": 0.5, "sampler": "image"}
    train_field(field(), x, x[:4], **settings, resume=tmp_path / "state")
    other, seen = {"x_val": x[:4], **settings, **changed}, []
    for _ in range(2):
        train_field(field(), x, **other, resume=tmp_path / "state", progress=seen.append)
        assert len(seen) == 1, "trains from the start, and then is complete"


def test_muon_matches_torch_and_orthogonalises_matrices_of_all_shapes() -> None:
    generator = torch.Generator().manual_seed(11)
    shapes = [(7, 11), (7, 11), (13, 5), (5, 5)]
    ours, theirs = ([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes] for _ in range(2))
    optimisers = (StackedMuon(ours, lr=0.01), Muon(theirs, 0.01, 0.0, momentum=0.9, adjust_lr_fn="match_rms_adamw"))
    for _ in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=3e-4, rtol=0)  # torch works in bfloat16
        assert one.abs().max() > 3e-3
    matrices = orthogonalise(torch.randn(3, 11, 7, generator=torch.Generator().manual_seed(12)), steps=8)
    values = torch.linalg.svdvals(matrices)
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_a_saved_field_gives_the_same_output(tmp_path) -> None:
    net, values = field(), pixel_values(pictures())
    net.save(tmp_path / "field", note="kept")
    again, extra = Field.load(tmp_path / "field")
    idx = sample_pixels("image", B, H * W, 9, torch.Generator().manual_seed(10))
    context = gather_pixels(values, idx)
    assert torch.equal(net.decode(net.encode(context, idx)), again.decode(again.encode(context, idx)))
    assert extra == {"note": "kept"}
    (tmp_path / "field" / "config.json").write_text('{"field": {"height": 3}}')
    with pytest.raises(InputError, match=r"field: weights do not match config\.json"):
        Field.load(tmp_path / "field")

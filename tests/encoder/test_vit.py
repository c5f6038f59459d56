"""The vision transformer: a forward pass by hand, its symmetries, training, saving, and shapes that do not fit."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from attnknn.core.errors import InputError
from attnknn.encoder.config import TrainEmbedder
from attnknn.encoder.encoder import Encoder, embed
from attnknn.encoder.losses import EncoderLoss
from attnknn.encoder.train import train_encoder
from attnknn.encoder.vit import ViT
from synthetic import pictures

SMALL = {"patch": 4, "width": 12, "blocks": 2, "heads": 3}


def vit() -> ViT:
    torch.manual_seed(0)
    return ViT((3, 8, 12), **SMALL).eval()


@torch.no_grad()
def test_a_block_by_hand() -> None:
    """Pre-norm: x + attention(norm x), then x + network(norm x); the mean over patches of the last norm."""
    net, x = vit(), torch.randn(2, 3, 8, 12)
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # (B, 6, 48)
    tokens = patches @ net.patches.weight.flatten(1).T + net.patches.bias + net.positions
    for block in net.blocks.layers:
        normed = F.layer_norm(tokens, (12,), block.norm1.weight, block.norm1.bias)
        attention = block.self_attn
        q, k, v = (
            part.unflatten(2, (3, 4)).transpose(1, 2)  # (B, heads, 6, 4)
            for part in (normed @ attention.in_proj_weight.T + attention.in_proj_bias).chunk(3, 2)
        )
        mixed = ((q @ k.mT / math.sqrt(4)).softmax(3) @ v).transpose(1, 2).flatten(2)
        tokens = tokens + mixed @ attention.out_proj.weight.T + attention.out_proj.bias
        normed = F.layer_norm(tokens, (12,), block.norm2.weight, block.norm2.bias)
        tokens = tokens + block.linear2(F.gelu(block.linear1(normed)))
    expected = F.layer_norm(tokens, (12,), net.blocks.norm.weight, net.blocks.norm.bias).mean(1)
    torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_only_positions_tell_the_order_of_patches() -> None:
    net, x = vit(), torch.randn(2, 3, 8, 12)
    swapped = x.flip(3).unflatten(3, (3, 4)).flip(4).flatten(3)  # the patches of a row from right to left
    assert not torch.allclose(net(swapped), net(x), atol=1e-3)
    net.positions.zero_()
    torch.testing.assert_close(net(swapped), net(x), rtol=1e-4, atol=1e-5)


def test_it_trains_and_is_saved(tmp_path: Path) -> None:
    split = pictures(120)
    settings = TrainEmbedder.model_validate({"encoder": "vit", "epochs": 12, "batch_size": 20, "lr": 0.003})
    torch.manual_seed(0)
    encoder = Encoder("vit", split.x.shape[1:], len(split.classes), [], 0, vit=SMALL)
    history = train_encoder(split, encoder, EncoderLoss(len(split.classes), encoder.dim), settings, seed=0)
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    encoder.save(tmp_path / "vit")
    loaded, _ = Encoder.load(tmp_path / "vit")
    x = np.asarray(split.x[:10])
    np.testing.assert_array_equal(embed(loaded, x)[0], embed(encoder, x)[0])
    assert encoder.dim == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"patch": 5}, "does not divide images of 8×12"), ({"heads": 5}, "vit.heads: 5 does not divide width 12")],
)
def test_sizes_that_do_not_fit(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ViT((3, 8, 12), **(SMALL | settings))

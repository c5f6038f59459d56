"""Views of held-out images, searched in the unchanged bank."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attnknn.core.artifacts import BANK, TEST, Embeddings, Split
from attnknn.core.errors import InputError
from attnknn.encoder.encoder import Encoder, embed
from attnknn.experiments.image_views import embed_view, generate_views
from attnknn.index.bank import Bank
from attnknn.neighbours.search import memory, search
from attnknn.neighbours.views import held_out, load_views, save_views
from synthetic import pictures

K = 7


SPLIT = pictures()


def images(split: Split = SPLIT) -> torch.Tensor:
    return torch.from_numpy(np.array(split.x[held_out(split.part)]))


def encoded(split: Split) -> tuple[np.ndarray, Encoder, Embeddings, Bank]:
    """Held-out rows, and what they are embedded with and searched in."""
    torch.manual_seed(0)
    encoder = Encoder("convnet", split.x.shape[1:], 3, [4, 8], 5).eval()
    encoder.fit_normalisation(split.x[split.part == BANK])
    z, logits = embed(encoder, split.x)
    embeddings = Embeddings(z, split.y, split.part, split.classes, logits)
    return held_out(split.part), encoder, embeddings, memory(embeddings)


def test_a_crop_is_the_image_shifted_within_the_padding() -> None:
    x = images(pictures(size=11))
    ((_, crop),) = generate_views(x, False, 1, 2, 0)
    windows = [x[:, :, dy : dy + 7, dx : dx + 7] for dy in range(5) for dx in range(5)]
    matches = torch.stack([(crop[:, :, 2:-2, 2:-2] == window).flatten(1).all(1) for window in windows])
    assert (matches.sum(0) == 1).all()
    assert int(matches.any(1).sum()) > 10, "one draw an image"


def test_flips_are_mirror_images_and_crops_follow_the_seed_and_not_their_number() -> None:
    x = images()
    few, more = dict(generate_views(x, True, 1, 2, 5)), dict(generate_views(x, False, 3, 2, 5))
    other_seed = dict(generate_views(x, False, 1, 2, 6))
    assert (list(few), list(more)) == (["flip", "crop_1"], ["crop_1", "crop_2", "crop_3"])
    assert torch.equal(few["flip"], x.flip(-1))
    assert torch.equal(few["crop_1"], more["crop_1"])
    for other in (more["crop_2"], other_seed["crop_1"]):
        assert not torch.equal(more["crop_1"], other)


@pytest.mark.parametrize("k_max", [K, 1000])
def test_a_view_that_changes_nothing_finds_what_the_search_found(k_max: int) -> None:
    x = np.array(SPLIT.x)
    twin, original = SPLIT.rows(TEST)[0], SPLIT.rows(BANK)[3]
    x[twin] = x[original]  # an image that is in the bank is a neighbour like any other
    rows, encoder, embeddings, bank = encoded(replace(SPLIT, x=x))
    view = embed_view(encoder, x[rows], rows, bank, k_max)
    ids, sims = search(bank, embeddings, k_max).take(rows, min(k_max, len(bank.ids) - 1))
    for result, expected in ((view.ids, ids), (view.sims, sims), (view.logits, embeddings.logits[rows])):
        assert np.array_equal(result, expected)
    assert view.ids[rows == twin, 0] == original
    assert view.sims[rows == twin, 0] == 0


def test_only_bank_rows_are_neighbours_and_loaded_views_are_those_saved(tmp_path: Path) -> None:
    rows, encoder, _, bank = encoded(SPLIT)
    np.testing.assert_array_equal(np.sort([*rows, *SPLIT.rows(BANK)]), np.arange(len(SPLIT.part)))
    transformed = generate_views(images(), True, 2, 2, 0)
    views = {name: embed_view(encoder, x.numpy(), rows, bank, K) for name, x in transformed}
    assert save_views(iter(views.items()), tmp_path / "views") == ["flip", "crop_1", "crop_2"]
    loaded = load_views(tmp_path / "views")
    assert list(loaded) == list(views)
    for name, view in views.items():
        assert np.array_equal(view.rows, rows)
        assert (SPLIT.part[view.ids] == BANK).all()
        for field in ("rows", "z", "ids", "sims", "logits", "metric"):
            assert np.array_equal(getattr(loaded[name], field), getattr(view, field)), field
    assert save_views(iter(()), tmp_path / "none") == []
    assert load_views(tmp_path / "none") == {}
    for change, message in (
        ({"rows": rows[::-1].copy()}, "rows: must ascend"),
        ({"z": view.z[1:]}, f"z: {len(rows) - 1} rows; expected {len(rows)}"),
        ({"logits": np.full_like(view.z, np.nan)}, "logits: NaN"),
    ):
        with pytest.raises(InputError, match=message):
            replace(view, **change)

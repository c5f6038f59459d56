"""Encoders beside each other: what is compared."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import yaml

from attnknn.core.artifacts import Predictions
from attnknn.core.errors import InputError
from attnknn.encoder.config import TrainEmbedder
from attnknn.evaluation import metrics
from attnknn.evaluation.paired_tests import BESIDE, side_by_side
from attnknn.experiments import train_ablation
from attnknn.experiments.config import EncoderAblation
from pipeline.check import check
from pipeline.settings import merge
from synthetic import pictures
from synthetic_results import binary

SCORING = {"bins": 5, "resamples": 300, "confidence": 0.9}
METHODS = ("distance", "attention")


def predictions(seed: int, right: float = 0.7, n: int = 400) -> Predictions:
    return binary(dict.fromkeys(METHODS, right), n, seed)


def test_each_source_has_its_scores_and_the_first_less_it_on_the_same_rows() -> None:
    sources = {"configured": predictions(0), "a / b": predictions(1), "other": predictions(2, 0.6)}
    table = side_by_side(sources, (*METHODS, "not there"), SCORING, seed=3)
    rows = {(r["source"], r["method"], r["metric"]): r for r in table}
    assert len(rows) == len(table) == 3 * 2 * 3
    assert all(tuple(row) == BESIDE for row in table)
    for (source, method, metric), row in rows.items():
        own = metrics.scores(sources[source].probs[METHODS.index(method)], sources[source].y, 5)[metric]
        assert row["value"] == pytest.approx(own)
        if source == "configured":
            assert row["difference"] is None
        else:
            assert row["difference"] == pytest.approx(rows["configured", method, metric]["value"] - own)
            assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    one = predictions(0)
    with pytest.raises(InputError, match="rows or classes differ"):
        side_by_side({"a": one, "b": replace(one, y=1 - one.y)}, METHODS, SCORING, 0)


def test_tables_and_images_have_variants_of_their_own_unless_some_are_named() -> None:
    ablation, named = EncoderAblation(), {"wide": {"widths": [512]}}
    for encoder, own in (("mlp", ablation.table_variants), ("convnet", ablation.image_variants)):
        assert ablation.variants_for(encoder) == own
        assert EncoderAblation(variants=named).variants_for(encoder) == named
        for change in own.values():
            TrainEmbedder(**merge({"encoder": encoder, "shrunk": 0.5}, change))


def test_a_transformer_that_does_not_fit_is_refused_before_others_are_trained(tmp_path: Path) -> None:
    split = pictures(size=6)
    variants = {"first": TrainEmbedder(widths=[4], epochs=1), "vit": TrainEmbedder(encoder="vit")}
    with mock.patch.object(train_ablation, "fit_and_embed") as fit, pytest.raises(InputError, match="vit"):
        train_ablation.train_variants(variants, split, {"device": "cpu"}, 0, "x", tmp_path)
    fit.assert_not_called()


def test_variants_that_are_no_encoder_stop_before_any_work(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    raw = yaml.safe_load((root / "params.yaml").read_text("utf-8"))
    for name in ("presets", "datasets.yaml"):
        (tmp_path / name).symlink_to(root / name)
    raw["encoder_ablation"] = {"seeds": [42], "variants": {"wide": {"width": [3]}}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw), "utf-8")
    message = r"^params\.yaml: encoder_ablation\.variants\.wide \(for digits\)\.width: unknown key"
    with pytest.raises(InputError, match=message):
        check(tmp_path)

"""Fitting models from tables, vectors, image folders and splits."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_models import FAST, iris_csv, picture_encoder, picture_folders, save_npy, split_of_images

from attnknn.app.model.fit import fit_model
from attnknn.app.model.inputs import Batch, Rows
from attnknn.app.model.labelled_rows import decode_columns, read_labels, stratified_mask
from attnknn.app.model.model import Model
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.duplicates import split_groups
from attnknn.core.errors import InputError
from attnknn.data.schema import column_kinds, fit_schema
from attnknn.encoder.encoder import Encoder, embed
from attnknn.evaluation.metrics import scores


def test_stratified_mask() -> None:
    labels = np.repeat(["a", "b", "c"], [50, 9, 1])
    mask = stratified_mask(labels, 0.2, seed=3)
    assert [int(mask[labels == name].sum()) for name in "abc"] == [10, 1, 0]
    assert (stratified_mask(labels, 0.2, 3) == mask).all()
    assert (stratified_mask(labels, 0.2, 4) != mask).any()
    assert not stratified_mask(labels, 0.0, 3).any()
    assert stratified_mask(np.zeros(100, str), 0.29, 3).sum() == 29  # 0.29·100 < 29 in float64


def test_identical_rows_are_drawn_together() -> None:
    labels, first = np.repeat(["a", "b", "c"], [60, 30, 2]), np.r_[np.arange(90) % 45, 90, 90]
    mask = stratified_mask(labels, 0.2, 3, first)
    np.testing.assert_array_equal(mask, mask[first])
    assert 18 <= mask[:90].sum() <= 20
    assert not mask[90:].any(), "a class of one distinct row stays in the memory"
    np.testing.assert_array_equal(stratified_mask(labels, 0.2, 3, np.arange(92)), stratified_mask(labels, 0.2, 3))
    groups = split_groups(np.arange(92) % 45, np.zeros(92))  # most rows are duplicates
    np.testing.assert_array_equal(stratified_mask(labels, 0.2, 3, groups), stratified_mask(labels, 0.2, 3))


@pytest.mark.parametrize("seed", range(5))
def test_copies_neither_exceed_the_share_nor_are_on_both_sides(seed: int) -> None:
    """The copies of one row are 40 of 100; the only row of "c" is a copy of one of "a"."""
    labels = np.repeat(["a", "b", "c"], [60, 39, 1])
    first = np.r_[np.full(40, 0), np.arange(40, 99), 50]
    mask = stratified_mask(labels, 0.2, seed, first)
    np.testing.assert_array_equal(mask, mask[first])
    assert [int(mask[labels == name].sum()) for name in "abc"] == [12, 7, 0]


def test_scores_are_those_of_test_cases_outside_the_memory(table: tuple[Path, Model, dict]) -> None:
    folder, model, summary = table
    assert (summary["memory"], summary["test"], summary["classes"]) == (120, 30, 3)
    probs = model.classifier.predict_proba(model.cases.vectors)
    y = np.searchsorted(model.classifier.classes_, model.cases.labels)
    assert summary["nll"] == pytest.approx(scores(probs, y)["nll"])
    frame = pd.read_csv(folder / "iris.csv", dtype=str)[model.examples.table.columns]
    stored = pd.concat([model.examples.table, model.cases.examples.table])
    assert sorted(stored.fillna("").agg("|".join, axis=1)) == sorted(frame.fillna("").agg("|".join, axis=1))
    assert stored["kind"].isna().sum() == 1


def test_the_schema_is_fitted_on_memory_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.r_[np.arange(40) / 8, 1000 + np.arange(40) / 8], "y": ["a", "b"] * 40})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, _ = fit_model(tmp_path / "t.csv", target="y", test=0.5, seed=1, **FAST)
    assert isinstance(model.input, Rows)
    in_memory = ~stratified_mask(frame["y"].to_numpy(str), 0.5, 1)
    assert model.input.schema.numeric[0].mean == pytest.approx(frame["x"][in_memory].mean())


def test_official_test_folders_are_the_test_cases(tmp_path: Path) -> None:
    for name, per_class in (("images/train", 12), ("images/test", 4), ("more", 2), ("images/train/.cache", 1)):
        picture_folders(tmp_path / name, per_class)
    (tmp_path / "more/left").rename(tmp_path / "images/test/unknown")  # a class without training rows
    picture_encoder().save(tmp_path / "encoder")
    model, summary = fit_model(tmp_path / "images", encoder=tmp_path / "encoder", **FAST)
    assert (summary["memory"], summary["test"], len(model.examples.images)) == (24, 8, 24)


def test_parts_of_a_split(tmp_path: Path) -> None:
    split = split_of_images()
    split.save(tmp_path / "split")
    encoder = picture_encoder()
    encoder.save(tmp_path / "encoder")
    model, summary = fit_model(tmp_path / "split", encoder=tmp_path / "encoder", **FAST)
    assert (summary["memory"], summary["test"]) == (60, 20)
    assert len(model.classifier._held_out) == 10  # half of fit and val rows
    z = embed(encoder, split.x)[0]
    np.testing.assert_allclose(model.cases.vectors, z[80:], atol=1e-6)
    np.testing.assert_array_equal(model.cases.labels, np.array(["no", "yes"])[split.y[80:]])
    np.testing.assert_array_equal(model.examples.images, split.x[:60])


def test_a_split_of_a_table(tmp_path: Path) -> None:
    iris_csv(tmp_path / "iris.csv")
    frame = pd.read_csv(tmp_path / "iris.csv", dtype=str)
    names = frame.pop("target")
    schema = fit_schema(frame, column_kinds(frame), np.ones(150, bool))
    x = schema.encode(frame)
    classes, y = np.unique(names, return_inverse=True)
    part = np.resize(np.array([BANK, BANK, FIT, VAL, TEST], np.int8), 150)
    Split(x, y, part, tuple(classes), schema.features, schema.to_dict()).save(tmp_path / "split")
    encoder = Encoder("mlp", (x.shape[1],), 0, [4], embed_dim=2).eval()
    encoder.save(tmp_path / "encoder")
    fit_model(tmp_path / "split", encoder=tmp_path / "encoder", **FAST)[0].save(tmp_path / "model")
    model = Model.load(tmp_path / "model")
    (batch,) = model.input.batches([str(tmp_path / "iris.csv")])
    np.testing.assert_allclose(model.input.vectors(batch), embed(encoder, x)[0], atol=1e-6)
    assert model.examples.columns(0)["kind"] == frame["kind"][0]


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_decoded_columns_are_those_that_were_encoded(tmp_path: Path, scale: str) -> None:
    iris_csv(tmp_path / "iris.csv")
    frame = pd.read_csv(tmp_path / "iris.csv", dtype=str).drop(columns="target")
    frame.loc[5, "sepal width (cm)"] = np.nan
    schema = fit_schema(frame, column_kinds(frame), np.ones(150, bool), scale)
    again = decode_columns(schema, schema.encode(frame))
    assert again["kind"].equals(frame["kind"])
    assert again["sepal width (cm)"].isna().sum() == 1
    for name in ("sepal length (cm)", "petal width (cm)"):
        tolerance = 1e-5 if scale == "standard" else 0.5
        np.testing.assert_allclose(again[name].astype(float), frame[name].astype(float), atol=tolerance)


def test_read_labels(tmp_path: Path) -> None:
    numbers, one, two, hole = (tmp_path / name for name in ("y.npy", "one.csv", "two.csv", "hole.csv"))
    labels, columns = read_labels(save_npy(numbers, np.array([3, 1])), None, {})
    assert (labels.tolist(), columns) == (["3", "1"], None)
    one.write_text("class\na\nb\n")
    two.write_text("class,title\na,x\nb,y\n")
    hole.write_text("class\na\nNA\nb\n")
    assert read_labels(one, None, {})[0].tolist() == ["a", "b"]
    labels, columns = read_labels(two, "class", {})
    assert (labels.tolist(), columns["title"].tolist()) == (["a", "b"], ["x", "y"])
    for path, message in (
        (two, "columns class, title; name the label column with --target"),
        (hole, r"hole\.csv line 3: no label"),
        (save_npy(tmp_path / "f.npy", np.zeros(3)), "expected integers or strings"),
    ):
        with pytest.raises(InputError, match=message):
            read_labels(path, None, {})


def test_vectors_with_columns_beside_them(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("attnknn.app.model.fit._MAX_CASES", 3)
    z, labels = np.random.default_rng(0).normal(size=(60, 3)), np.array(["a", "b"] * 30)
    titles = [f"t{i}" for i in range(60)]
    pd.DataFrame({"y": labels, "title": titles}).to_csv(tmp_path / "r.csv", index=False)
    source, params = save_npy(tmp_path / "z.npy", z), {"rows": tmp_path / "r.csv", "metric": "cosine", **FAST}
    model, summary = fit_model(source, target="y", test=0.1, seed=5, **params)
    assert summary["test"] == 6
    rows = [titles.index(title) for title in model.cases.examples.table["title"]]
    assert len(rows) == 3
    np.testing.assert_allclose(model.cases.vectors, z[rows])
    assert model.cases.labels.tolist() == labels[rows].tolist()
    mask = stratified_mask(labels, 0.1, 5)
    assert mask[rows].all()
    assert model.examples.table["title"].tolist() == [titles[i] for i in np.flatnonzero(~mask)]
    assert model.classifier.metric == "cosine"
    assert model.rows_of(model.add([Batch(["new"], z[:1])], model.parse_labels(["a"]))[0]) == [{"title": None}]


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_continuous_labels_are_classes_if_named_in_categories(tmp_path: Path, suffix: str) -> None:
    x = np.arange(84) % 21
    frame = pd.DataFrame({"a": x + np.random.default_rng(0).normal(0, 0.1, 84), "y": x / 8})
    frame.to_csv(tmp_path / "t.csv", index=False)
    source, rows = tmp_path / "t.csv", None
    if suffix == ".npy":
        source, rows = save_npy(tmp_path / "t.npy", frame[["a"]].to_numpy()), source
    with pytest.raises(InputError, match=r"^t\.csv, column 'y': continuous numbers \(0\.125, .* in `categories`"):
        fit_model(source, rows=rows, target="y", **FAST)
    model, _ = fit_model(source, rows=rows, target="y", categories=["y"], **FAST)
    assert sorted(model.classifier.classes_) == sorted(str(value) for value in frame["y"].unique())


def ordinary(n: int = 80) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3))


def noise(share: float, size: float) -> np.ndarray:
    """Ordinary rows after a share of rounding noise."""
    X = ordinary()
    X[: int(share * 80)] *= size
    return X


def with_values(values: Any, rows: Any = slice(None), X: np.ndarray | None = None) -> np.ndarray:
    X = ordinary() if X is None else X.copy()
    X[rows, 1] = values
    return X


ROW = np.arange(80)
ACCEPTED = {
    "large": ordinary() * 1e20, "small": ordinary() * 1e-300, "counts": np.floor(ordinary() * 1e5),
    "60 % noise": noise(0.6, 1e-12), "90 % noise": noise(0.9, 1e-17), "noise beside large": noise(0.9, 1e-12) * 1e7,
    "noise and a 1": with_values(np.where(ROW == 5, 1, 1e-12)), "nothing else": np.c_[np.where(ROW == 5, 1, 1e-12)],
    "softmax": with_values(np.where(ROW == 5, 0.97, 1e-12)), "p-values": with_values(10.0**-ROW),
    "zeros and a 1": with_values(ROW == 5), "ns": with_values(1.7e18 + 8.6e13 * (ROW * 7 % 80)),
    "constant": with_values(1e18), "rare class": np.c_[np.where(ROW % 20, 1e-12, 0.9), ordinary()],
}  # fmt: skip
DWARFED = {
    "one": with_values(-1e12, 5), "fill value": with_values(9.97e36, 5), "largest": with_values(-1.7e308, 5),
    "2": with_values(1e12, [5, 9]), "8": with_values(1e12, slice(5, 13)), "30": with_values(1e12, slice(5, 35)),
    "among small": with_values(9.97e36, 5, ordinary() * 1e-8), "among large": with_values(1e32, 5, ordinary() * 1e20),
    "among zeros": with_values(1e12, 5, ordinary() * (ROW % 3 > 0)[:, None]),
    "beside 1e12": np.c_[with_values(1e20, 5), np.full(80, 1e12)], "at 1e12": with_values(1e22, 5, ordinary() + 1e12),
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
@pytest.mark.parametrize(("name", "X"), (ACCEPTED | DWARFED).items(), ids=(ACCEPTED | DWARFED))
def test_values_that_dwarf_the_others_are_refused_by_row_and_column(
    tmp_path: Path, suffix: str, name: str, X: np.ndarray
) -> None:
    labels = np.arange(80) % 2
    source, rows = tmp_path / f"t{suffix}", save_npy(tmp_path / "y.npy", labels)
    if suffix == ".npy":
        save_npy(source, X)
    else:
        columns = list("abcd")[: X.shape[1]]
        pd.DataFrame(X, columns=columns).assign(y=labels).to_csv(source, index=False)
    arguments = {"rows": rows} if suffix == ".npy" else {"target": "y"}
    if name in ACCEPTED:
        fit_model(source, **arguments, **FAST)
        return
    where = {".csv": "line 7: column 'b'", ".npy": "row 5, column 1:"}[suffix]
    with pytest.raises(InputError, match=rf"^t\{suffix} {where} .* over 1e\+09 times"):
        fit_model(source, **arguments, **FAST)


def test_a_test_row_beyond_what_the_memory_scales_is_named(tmp_path: Path) -> None:
    x, labels = np.zeros((2, 80)), np.arange(80) % 2
    x[0] = np.random.default_rng(0).normal(size=80)
    row = np.flatnonzero(stratified_mask(labels, 0.2, 0))[0]
    x[1, row] = 9.97e36
    pd.DataFrame({"a": x[0], "b": x[1], "y": labels}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=rf"^t\.csv line {row + 2}, column b: 9\.97e\+36, over"):
        fit_model(tmp_path / "t.csv", target="y", test=0.2, **FAST)

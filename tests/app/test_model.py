"""Models: what people have becomes vectors, rows keep their looks, and nothing of the test cases is learned from."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_iris
from synthetic_models import iris_csv, picture_encoder, picture_folders, save_npy

from attnknn import AttnKNNClassifier
from attnknn.app.model.examples import Examples
from attnknn.app.model.explain_plot import plot_explanations
from attnknn.app.model.fit import decode_columns, fit_model, read_labels, stratified_mask
from attnknn.app.model.inputs import Batch, Pictures, Rows, Vectors
from attnknn.app.model.model import Model
from attnknn.app.model.sentences import describe_answer, describe_counterfactual, describe_rest, percent
from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError
from attnknn.data.image_folder import decode
from attnknn.data.schema import column_kinds, fit_schema
from attnknn.encoder.encoder import Encoder, embed
from attnknn.evaluation.metrics import scores

FAST = {"weights": "distance", "n_neighbors": 7}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, dict]:
    folder = tmp_path_factory.mktemp("table")
    iris_csv(folder / "iris.csv")
    model, about = fit_model(folder / "iris.csv", target="target", test=0.2, **FAST)
    model.save(folder / "model")
    return folder, model, about


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, dict]:
    folder = tmp_path_factory.mktemp("pictures")
    picture_folders(folder / "images")
    picture_encoder().save(folder / "encoder")
    model, about = fit_model(folder / "images", encoder=folder / "encoder", test=0.25, **FAST)
    model.save(folder / "model")
    return folder, model, about


def test_rows_kept_out_are_a_share_of_each_class_and_no_others() -> None:
    labels = np.repeat(["a", "b", "c"], [50, 9, 1])
    out = stratified_mask(labels, 0.2, seed=3)
    assert [int(out[labels == name].sum()) for name in "abc"] == [10, 1, 0]
    assert (stratified_mask(labels, 0.2, 3) == out).all()
    assert (stratified_mask(labels, 0.2, 4) != out).any()
    assert not stratified_mask(labels, 0.0, 3).any()
    assert stratified_mask(np.zeros(100, str), 0.29, 3).sum() == 29  # 0.29 times 100 is less in float64


def test_scores_are_those_of_cases_that_are_in_no_memory(table: tuple[Path, Model, dict]) -> None:
    folder, model, about = table
    assert (about["memory"], about["test"], about["classes"]) == (120, 30, 3)
    cases = model.cases
    assert cases is not None
    probs = model.classifier.predict_proba(cases.vectors)
    y = np.searchsorted(model.classifier.classes_, cases.labels)
    assert about["nll"] == pytest.approx(scores(probs, y)["nll"])
    frame = pd.read_csv(folder / "iris.csv", dtype=str, keep_default_na=False)
    known = frame[model.examples.table.columns].agg("|".join, axis=1)
    mine = model.examples.table.fillna("").agg("|".join, axis=1)
    theirs = cases.examples.table.fillna("").agg("|".join, axis=1)
    assert sorted([*mine, *theirs]) == sorted(known)
    assert model.examples.table["kind"].isna().sum() + cases.examples.table["kind"].isna().sum() == 1


def test_a_schema_is_learned_from_memory_rows_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.r_[np.arange(40.0) % 7, 1000 * np.ones(40)], "y": ["a", "b"] * 40})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model, _ = fit_model(tmp_path / "t.csv", target="y", test=0.5, seed=1, **FAST)
    assert isinstance(model.input, Rows)
    kept = ~stratified_mask(frame["y"].to_numpy(str), 0.5, 1)
    assert model.input.schema.numeric[0].mean == pytest.approx(frame["x"][kept].mean())


@pytest.mark.parametrize("kind", ["table", "pictures"])
def test_what_is_read_again_answers_and_looks_alike(kind: str, request: pytest.FixtureRequest) -> None:
    folder, model, _ = request.getfixturevalue(kind)
    again = Model.load(folder / "model")
    assert again.input.kind == model.input.kind
    assert again.cases is not None
    np.testing.assert_array_equal(again.cases.labels, model.cases.labels)
    np.testing.assert_array_equal(
        again.classifier.predict_proba(again.cases.vectors), model.classifier.predict_proba(model.cases.vectors)
    )
    for row in range(3):
        assert again.examples.columns(row) == model.examples.columns(row)
        np.testing.assert_array_equal(again.examples.image(row), model.examples.image(row))
    # The classifier of it can be read alone.
    alone = AttnKNNClassifier.load(folder / "model")
    np.testing.assert_array_equal(alone.predict(model.cases.vectors), model.classifier.predict(model.cases.vectors))


def test_pictures_are_what_the_encoder_makes_of_their_files(pictures: tuple[Path, Model, dict]) -> None:
    folder, model, about = pictures
    assert (about["memory"], about["test"]) == (18, 6)
    (batch,) = model.input.batches([str(folder / "images" / "left")])
    assert [Path(name).name for name in batch.names] == sorted(f"{i}.png" for i in range(12))
    pixels = np.stack([np.asarray(Image.open(name)) for name in batch.names])[:, None]
    np.testing.assert_array_equal(batch.values, pixels)
    encoder, _ = Encoder.load(folder / "encoder")
    np.testing.assert_allclose(model.input.vectors(batch), embed(encoder, pixels)[0], atol=1e-6)
    known = [model.examples.image(row).tolist() for row in range(18)]
    of_class = [known.count(image.tolist()) for image in pixels[:, 0]]
    assert sum(of_class) == 9
    assert (model.classifier.classes_[model.classifier.memory_.y[:9]] == "left").all()


def test_pictures_of_another_size_and_colour_become_those_of_the_encoder() -> None:
    pictures = Pictures(picture_encoder())
    buffer = io.BytesIO()
    Image.new("RGB", (40, 20), (200, 10, 10)).save(buffer, "PNG")
    image = pictures.decode(buffer.getvalue(), "red.png")
    assert image.shape == (1, 8, 8)
    assert (image == 67).all()  # 0.299·200 + 0.701·10, as ITU-R 601 has it
    colour = Pictures(Encoder("convnet", (3, 8, 8), 0, [4, 4, 4], embed_dim=3, depth=1))
    Image.new("L", (8, 8), 9).save(buffer := io.BytesIO(), "PNG")
    assert colour.decode(buffer.getvalue(), "grey.png").tolist() == np.full((3, 8, 8), 9).tolist()


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    image.save(buffer := io.BytesIO(), kind, **options)
    return buffer.getvalue()


def test_pictures_are_upright_as_the_camera_says() -> None:
    config = Pictures(picture_encoder())
    pixels = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
    upright = Image.fromarray(pixels)
    turned = {  # orientation: what the camera wrote
        1: pixels, 2: pixels[:, ::-1], 3: pixels[::-1, ::-1], 4: pixels[::-1],
        5: pixels.T, 6: np.rot90(pixels), 7: pixels[::-1, ::-1].T, 8: np.rot90(pixels, -1),
    }  # fmt: skip
    for orientation, stored in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind in ("PNG", "TIFF", "WEBP"):
            lossless = {"lossless": True} if kind == "WEBP" else {}
            data = encoded(Image.fromarray(np.ascontiguousarray(stored)), kind, exif=exif, **lossless)
            np.testing.assert_allclose(config.decode(data, kind)[0], pixels, atol=1, err_msg=f"{kind} {orientation}")
    exif[0x0112] = 99
    assert (config.decode(encoded(upright, exif=exif), "odd") == pixels).all()
    assert (config.decode(encoded(upright, exif=b"Exif\0\0damaged"), "damaged") == pixels).all()


def test_pictures_of_any_kind_are_what_a_viewer_shows_first() -> None:
    pictures = Pictures(picture_encoder())
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)
    grey = Image.fromarray(pixels)
    for data in (
        *(encoded(grey.convert(mode)) for mode in ("L", "LA", "P", "RGB", "RGBA")),
        encoded(grey.convert("P"), "GIF", save_all=True, append_images=[grey.rotate(90).convert("P")]),
        encoded(grey.convert("CMYK"), "TIFF"),
    ):
        np.testing.assert_allclose(pictures.decode(data, "x")[0], pixels, atol=1)
    with pytest.raises(InputError, match="I;16 pixels; convert"):
        pictures.decode(encoded(Image.fromarray(pixels.astype(np.uint16))), "x")


def test_axes_of_a_picture_are_channel_height_width() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(pixels))
    np.testing.assert_array_equal(decode(data, "x"), pixels.transpose(2, 0, 1))
    assert decode(data, "x", size=(10, 3)).shape == (3, 10, 3)
    grey = Image.fromarray(pixels[:, :, 0])
    for mode in ("L", "LA", "1"):
        assert decode(encoded(grey.convert(mode)), "x").shape == (1, 5, 7)
    for mode in ("I", "F"):
        with pytest.raises(InputError, match=f"{mode} pixels; convert the images to 8 bits a channel"):
            decode(encoded(grey.convert(mode), "TIFF"), "x")
    with pytest.raises(InputError, match="no readable image"):
        decode(encoded(grey, "ICO"), "x")  # no format of pictures that are taken


def test_large_pictures_are_kept_small() -> None:
    pictures = Pictures(picture_encoder())
    kept = pictures.examples(Batch(["a"], np.zeros((1, 1, 200, 100), np.uint8))).images
    assert kept is not None
    assert kept.shape == (1, 1, 67, 34)


def test_official_test_folders_are_the_test_cases(tmp_path: Path) -> None:
    picture_folders(tmp_path / "images/train")
    picture_folders(tmp_path / "images/test", 4)
    picture_folders(tmp_path / "more", 2)
    (tmp_path / "more/left").rename(tmp_path / "images/test/elsewhere")  # a class that nobody was taught
    picture_folders(tmp_path / "images/train/.cache", 1)
    picture_encoder().save(tmp_path / "encoder")
    model, about = fit_model(tmp_path / "images", encoder=tmp_path / "encoder", **FAST)
    assert (about["memory"], about["test"], len(model.examples.images)) == (24, 8, 24)


def split_of_digits() -> Split:
    rng = np.random.default_rng(0)
    part = np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), [60, 10, 10, 20])
    x = rng.integers(0, 255, (100, 1, 8, 8), dtype=np.uint8)
    return Split(x, rng.integers(0, 2, 100), part, ("no", "yes"))


def test_of_a_split_the_bank_is_the_memory_and_the_others_teach_or_test(tmp_path: Path) -> None:
    split = split_of_digits()
    split.save(tmp_path / "split")
    encoder = picture_encoder()
    encoder.save(tmp_path / "encoder")
    model, about = fit_model(tmp_path / "split", encoder=tmp_path / "encoder", **FAST)
    assert (about["memory"], about["test"]) == (60, 20)
    assert len(model.classifier._held_out[1]) == 10  # half of fit and val rows
    z = embed(encoder, split.x)[0]
    np.testing.assert_allclose(model.cases.vectors, z[80:], atol=1e-6)
    np.testing.assert_array_equal(model.cases.labels, np.array(["no", "yes"])[split.y[80:]])
    np.testing.assert_array_equal(model.examples.images, split.x[:60])


def test_a_split_of_a_table_is_read_by_its_schema_and_encoder(tmp_path: Path) -> None:
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


def test_cases_may_lack_a_class(tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(43, 3))
    y = save_npy(tmp_path / "y.npy", np.array(["b"] * 20 + ["c"] * 20 + ["a"] * 3))
    model, about = fit_model(save_npy(tmp_path / "z.npy", z), rows=y, test=0.2, **FAST)
    assert (about["classes"], about["test"]) == (3, 8)  # too few of a
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m").cases.labels.tolist() == model.cases.labels.tolist() == ["b"] * 4 + ["c"] * 4


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_decoded_columns_are_those_that_were_encoded(tmp_path: Path, scale: str) -> None:
    iris_csv(tmp_path / "iris.csv")
    frame = pd.read_csv(tmp_path / "iris.csv", dtype=str).drop(columns="target")
    frame.loc[5, "sepal width (cm)"] = np.nan
    schema = fit_schema(frame, column_kinds(frame), np.ones(150, bool), scale)
    again = decode_columns(schema, schema.encode(frame))
    assert again["kind"].isna().tolist() == frame["kind"].isna().tolist()
    assert (again["kind"].dropna() == frame["kind"].dropna()).all()
    assert again["sepal width (cm)"].isna().sum() == 1
    for name in ("sepal length (cm)", "petal width (cm)"):
        tolerance = 1e-5 if scale == "standard" else 0.5
        np.testing.assert_allclose(again[name].astype(float), frame[name].astype(float), atol=tolerance)


def test_rows_that_come_and_go_take_their_looks_along(table: tuple[Path, Model, dict]) -> None:
    folder, _, _ = table
    model = Model.load(folder / "model")
    before = model.examples.table.copy()
    (batch,) = model.input.batches([str(folder / "iris.csv")])
    new = batch.take([0, 1])
    ids = model.add(new, model.parse_labels(["setosa", "virginica"]))
    assert ids == [120, 121]
    model.forget([0, 120, 7, 7])
    assert model.rows_of([121])[0]["kind"] == new.values["kind"].iloc[1]
    assert model.rows_of([1])[0] == {k: None if v != v else v for k, v in before.iloc[1].items()}
    assert len(model.examples.table) == len(model.classifier.memory_) == 119
    with pytest.raises(InputError, match="id 0, 7: not in the memory"):
        model.rows_of([0, 7, 8])
    with pytest.raises(InputError, match="not in the memory"):
        model.forget([120])
    model.save(folder / "changed")
    again = Model.load(folder / "changed")
    assert again.rows_of([121]) == model.rows_of([121])
    assert again.add(new.take([0]), again.parse_labels(["setosa"])) == [122]


def test_looks_are_read_as_they_were_written(tmp_path: Path) -> None:
    looks = Examples(
        table=pd.DataFrame({"a": ["None", "1.0", np.nan], "b, c": ['"', "NULL", "two\nlines"]}, dtype=object)
    )
    looks.save(tmp_path, "memory")
    again = Examples.load(tmp_path, "memory", 3)
    assert [again.columns(row) for row in range(3)] == [looks.columns(row) for row in range(3)]
    with pytest.raises(InputError, match=r"memory\.csv: 3 rows, the model has 4"):
        Examples.load(tmp_path, "memory", 4)
    more = looks.append(Examples(table=pd.DataFrame({"d": ["x"], "a": ["y"]})), 1)
    assert more.columns(3) == {"a": "y", "b, c": None}
    assert looks.take(np.array([2, 0])).append(looks, 3).columns(1) == looks.columns(0)


def test_pictures_come_in_batches(pictures: tuple[Path, Model, dict]) -> None:
    folder, model, _ = pictures
    batches = list(model.input.batches([str(folder / "images"), str(folder / "images/left/0.png")], size=6))
    assert [len(batch.names) for batch in batches] == [6, 6, 6, 6, 1]
    assert [len(batch.values) for batch in batches] == [6, 6, 6, 6, 1]
    names = [name for batch in batches for name in batch.names]
    assert names[:24] == sorted(map(str, (folder / "images").rglob("*.png")))
    np.testing.assert_array_equal(batches[-1].values[0], batches[0].values[0])


def test_a_classifier_that_was_saved_alone_is_a_model_of_vectors(tmp_path: Path) -> None:
    frame = load_breast_cancer(as_frame=True)
    X = frame.data.iloc[:, :4]
    AttnKNNClassifier(weights="distance", random_state=0).fit(X, frame.target).save(tmp_path / "m")
    model = Model.load(tmp_path / "m")
    assert model.input == Vectors(4, tuple(X.columns))
    shuffled = X[list(X.columns[::-1])].head(5).astype(str)
    shuffled.index = [f"line {i}" for i in range(5)]
    vectors = model.encode(Batch(list(shuffled.index), shuffled))
    np.testing.assert_allclose(model.classifier.predict_proba(vectors), model.classifier.predict_proba(X.head(5)))
    assert model.parse_labels(["1", "0"]).tolist() == [1, 0]
    with pytest.raises(InputError, match="label 2: no class of this model, which knows 0, 1"):
        model.parse_labels(["2"])


def test_an_answer_says_what_explain_says(table: tuple[Path, Model, dict]) -> None:
    _, model, _ = table
    cases = model.cases.vectors[:4]
    explanation = model.classifier.explain(cases)
    for i, answer in enumerate(model.answers(explanation, shown=3)):
        json.dumps(answer)
        assert answer["prediction"] == explanation.predictions[i]
        assert answer["confidence"] == pytest.approx(explanation.probabilities[i].max())
        assert answer["probabilities"][0]["label"] == answer["prediction"]
        weights = [neighbour["weight"] for neighbour in answer["neighbours"]]
        assert sum(weights) + answer["rest"]["weight"] + answer["null"]["weight"] == pytest.approx(1)
        assert answer["rest"]["count"] == 4
        assert weights == sorted(explanation.weights[i], reverse=True)[:3]
        sets = model.classifier.predict_set(cases, 0.1)[i]
        assert answer["set"] == model.classifier.classes_[sets].tolist()


def test_a_row_of_the_memory_is_asked_for_as_if_it_were_not_in_it(table: tuple[Path, Model, dict]) -> None:
    folder, model, _ = table
    (answer,) = model.answers(model.classifier.explain_rows([4]))
    assert 4 not in [neighbour["id"] for neighbour in answer["neighbours"]]
    left = Model.load(folder / "model")
    vector = left.classifier.memory_.vectors()[4:5] * left.classifier._unit + left.classifier._origin
    left.forget([4])
    np.testing.assert_allclose(left.classifier.predict_proba(vector)[0].max(), answer["confidence"], atol=1e-5)


def test_what_no_neighbour_says_is_named_for_what_says_it() -> None:
    X, y = load_iris(return_X_y=True)
    for settings, expected in (
        ({"weights": "distance"}, "class shares"),
        ({"prototypes": False}, "class shares"),
        ({}, "class means"),
    ):
        classifier = AttnKNNClassifier(7, max_iter=1, random_state=0, abstain=0.99, **settings).fit(X, y)
        answers = Model(classifier, Vectors(4), Examples()).answers(classifier.explain(X[60:90]))
        assert {answer["null"]["of"] for answer in answers} == {expected}
        assert [answer["abstains"] for answer in answers] == classifier.abstains(X[60:90]).tolist()


def test_words() -> None:
    assert [percent(p) for p in (0, 1e-5, 0.004, 0.5, 0.996, 0.99999, 1)] == [
        "0 %", "< 0.1 %", "0.4 %", "50 %", "99.6 %", "> 99.9 %", "100 %",
    ]  # fmt: skip
    answer = {"prediction": "a", "confidence": 0.5, "abstains": False, "set": ["a", "b"]}
    assert describe_answer(answer) == "a (50 %); 90 % set: {a, b}"
    assert (
        describe_answer({**answer, "abstains": True, "set": []}) == "abstains; the likeliest is a (50 %); 90 % set: {}"
    )
    parts = {"rest": {"count": 4, "weight": 0.2}, "null": {"of": "class means", "weight": 0.3}}
    assert describe_rest(parts) == "4 more neighbours weigh 20 %, class means 30 %"
    assert describe_rest({**parts, "rest": {"count": 0, "weight": 0}}) == "class means 30 %"
    change = {"how": "forget", "turned": True, "ids": [4], "label": "b", "prediction": "b", "confidence": 0.6}
    assert describe_counterfactual(answer, change) == "Without neighbour #4 it would be b (60 %)."
    assert "its 2 heaviest neighbours for a (#4, #5)" in describe_counterfactual(answer, {**change, "ids": [4, 5]})
    relabel = {**change, "how": "relabel", "ids": [4, 5]}
    assert (
        describe_counterfactual(answer, relabel)
        == "If its 2 heaviest neighbours for a (#4, #5) were b, it would be b (60 %)."
    )
    assert describe_counterfactual(answer, {**relabel, "turned": False, "prediction": "a"}).startswith("Even if its 2")
    assert describe_counterfactual(answer, {**change, "ids": [], "turned": False}) == "No neighbour votes for it."


def test_what_changes_is_a_few_to_forget_or_else_labels(table: tuple[Path, Model, dict]) -> None:
    _, model, _ = table
    vectors = model.cases.vectors
    changes = model.counterfactuals(vectors)
    assert {change["how"] for change in changes} == {"forget", "relabel"}
    for vector, change in zip(vectors, changes, strict=True):
        (expected,) = model.classifier.counterfactual(vector[None], how=change["how"], most=50)
        assert change["ids"] == expected.ids.tolist()
        assert change["confidence"] == pytest.approx(expected.probabilities.max())
        assert change["turned"] == (change["prediction"] != model.classifier.predict(vector[None])[0])
        assert len(change["ids"]) <= 10 or change["how"] == "relabel"
    assert all(change["turned"] for change in changes)
    assert 3 not in model.counterfactuals(ids=[3])[0]["ids"]


@pytest.mark.parametrize("kind", ["table", "pictures", "vectors"])
def test_an_explanation_is_drawn(kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "vectors":
        X, y = load_iris(return_X_y=True)
        model = Model(AttnKNNClassifier(**FAST, random_state=0).fit(X, y), Vectors(4), Examples())
        vectors, queries = X[:2], Examples()
    else:
        _, model, _ = request.getfixturevalue(kind)
        vectors, queries = model.cases.vectors[:2], model.cases.examples.take(np.arange(2))
    answers = model.answers(model.classifier.explain(vectors), 3)
    changes = model.counterfactuals(vectors)
    names = ["$a_1", "b" * 80]  # no mathematics
    drawn = plot_explanations(model, names, queries, answers, changes)
    picture = np.asarray(Image.open(io.BytesIO(drawn)).convert("L"))
    assert (picture < 128).mean() > 0.002
    assert drawn != plot_explanations(model, names, queries, answers[::-1], changes)


def test_labels_of_a_file(tmp_path: Path) -> None:
    labels, beside = read_labels(save_npy(tmp_path / "y.npy", np.array([3, 1])), None, {})
    assert (labels.tolist(), beside) == (["3", "1"], None)
    (tmp_path / "one.csv").write_text("class\na\nb\n")
    assert read_labels(tmp_path / "one.csv", None, {})[0].tolist() == ["a", "b"]
    (tmp_path / "two.csv").write_text("class,title\na,x\nb,y\n")
    labels, beside = read_labels(tmp_path / "two.csv", "class", {})
    assert labels.tolist() == ["a", "b"]
    assert beside["title"].tolist() == ["x", "y"]
    with pytest.raises(InputError, match="columns class, title; name that of the labels with --target"):
        read_labels(tmp_path / "two.csv", None, {})
    (tmp_path / "hole.csv").write_text("class\na\nNA\nb\n")
    with pytest.raises(InputError, match=r"hole\.csv line 3: no label"):
        read_labels(tmp_path / "hole.csv", None, {})
    with pytest.raises(InputError, match="whole numbers or texts"):
        read_labels(save_npy(tmp_path / "f.npy", np.zeros(3)), None, {})


def test_of_many_cases_some_are_kept_with_what_belongs_to_them(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("attnknn.app.model.fit._MAX_CASES", 3)
    z, names = np.random.default_rng(0).normal(size=(60, 3)), [f"t{i}" for i in range(60)]
    pd.DataFrame({"y": ["a", "b"] * 30, "title": names}).to_csv(tmp_path / "r.csv", index=False)
    model, about = fit_model(save_npy(tmp_path / "z.npy", z), rows=tmp_path / "r.csv", target="y", test=0.5, **FAST)
    rows = [names.index(title) for title in model.cases.examples.table["title"]]
    assert (about["test"], len(rows)) == (30, 3)
    np.testing.assert_allclose(model.cases.vectors, z[rows])
    assert model.cases.labels.tolist() == [["a", "b"][row % 2] for row in rows]


def test_vectors_with_columns_beside_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 3))
    pd.DataFrame({"y": ["a", "b"] * 30, "title": [f"t{i}" for i in range(60)]}).to_csv(tmp_path / "r.csv", index=False)
    model, about = fit_model(
        save_npy(tmp_path / "z.npy", z), rows=tmp_path / "r.csv", target="y", test=0.1, seed=5, metric="cosine", **FAST
    )
    assert about["test"] == 6
    out = stratified_mask(np.array(["a", "b"] * 30), 0.1, 5)
    assert model.examples.table["title"].tolist() == [f"t{i}" for i in np.flatnonzero(~out)]
    assert model.classifier.metric == "cosine"
    ids = model.add(Batch(["new"], z[:1]), model.parse_labels(["a"]))
    assert model.rows_of(ids) == [{"title": None}]


def bad_sources(folder: Path) -> dict[str, tuple[Path, dict, str]]:
    save = lambda name, array: save_npy(folder / name, array)  # noqa: E731
    z, y = save("z.npy", np.random.default_rng(0).normal(size=(20, 3))), save("y.npy", np.arange(20) % 2)
    (folder / "one.csv").write_text("x,y\n" + "".join(f"{i % 5},a\n" for i in range(20)))
    (folder / "many.csv").write_text("x,y\n" + "".join(f"{i % 5},{i / 7}\n" for i in range(20)))
    (folder / "empty.csv").write_text("")
    (folder / "text.npy").write_text("no array")
    (folder / "odd.bin").write_text("?")
    (folder / "pictures/a").mkdir(parents=True)
    picture_folders(folder / "broken")
    (folder / "broken/left/x.jpg").write_text("no image at all")
    picture_encoder().save(folder / "encoder")
    Encoder("mlp", (3,), 0, [4], embed_dim=2).save(folder / "mlp")
    split_of_digits().save(folder / "split")
    nan = np.zeros((20, 3))
    nan[4, 1] = np.nan
    e = {"encoder": folder / "encoder"}
    return {
        "no file": (folder / "none.csv", {"target": "y"}, "none.csv: no such file"),
        "no kind": (folder / "odd.bin", {}, "neither a .csv nor a .npy file"),
        "no target": (folder / "one.csv", {}, "name it with --target"),
        "another target": (folder / "one.csv", {"target": "z"}, "no target column 'z'"),
        "one class": (folder / "one.csv", {"target": "y"}, "labels: a alone"),
        "no classes": (folder / "many.csv", {"target": "y"}, "labels: 20 different ones in 20 rows"),
        "empty": (folder / "empty.csv", {"target": "y"}, "empty.csv: empty"),
        "no labels": (z, {}, "where are the labels"),
        "fewer labels": (save("w.npy", np.zeros((19, 3))), {"rows": y}, "20 rows for 19 vectors"),
        "NaN": (save("nan.npy", nan), {"rows": y}, "nan.npy row 4: NaN"),
        "one dimension": (save("flat.npy", np.zeros(20)), {"rows": y}, "of shape \\(20,\\)"),
        "complex": (save("c.npy", np.zeros((20, 3), complex)), {"rows": y}, "complex128 of shape"),
        "seed": (z, {"rows": y, "seed": 2**32}, "seed: 4294967296"),
        "objects": (save("o.npy", np.array([["a"]] * 20)), {"rows": y}, "numbers \\(rows, dimensions\\)"),
        "text": (folder / "text.npy", {"rows": y}, "no array that numpy can read"),
        "no encoder": (folder / "pictures", {}, "needs --encoder"),
        "one folder": (folder / "pictures", e, "1 class folders in it"),
        "text as image": (folder / "broken", e, "x.jpg: no readable image"),
        "encoder of tables": (folder / "broken", {"encoder": folder / "mlp"}, "an encoder of tables"),
        "split of another": (folder / "split", {"encoder": folder / "mlp"}, "reads rows of shape \\(3,\\)"),
        "no such encoder": (folder / "split", {"encoder": folder / "none"}, "no encoder"),
        "test": (z, {"rows": y, "test": 1.0}, "test: 1.0"),
    }  # fmt: skip


def test_what_cannot_be_taught_is_said_in_a_line(tmp_path: Path) -> None:
    for name, (source, kwargs, message) in bad_sources(tmp_path).items():
        with pytest.raises(InputError, match=message) as raised:
            fit_model(source, **{**FAST, **kwargs})
        assert "\n" not in str(raised.value), name


@pytest.mark.parametrize("file", ["input/input.json", "input/memory.csv", "input/case_vectors.npy"])
def test_a_damaged_model_is_refused(table: tuple[Path, Model, dict], tmp_path: Path, file: str) -> None:
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(table[0] / "model", copy)
    (copy / file).write_bytes((copy / file).read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged"):
        Model.load(copy)
    (copy / file).unlink()
    with pytest.raises(InputError, match="missing"):
        Model.load(copy)

"""What notebooks show of an explanation, and explanations behind a pipeline."""

import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import attnknn
from attnknn import AttnKNNClassifier
from attnknn.classifier.explanation import Explanation
from attnknn.core.errors import InputError
from attnknn.core.figure import as_png

X, Y = load_digits(return_X_y=True)
NAMES = np.array([f"<{c}>" for c in range(10)])


@pytest.fixture(scope="module")
def why() -> Explanation:
    model = AttnKNNClassifier(12, max_iter=3, random_state=0).fit(X[:400], NAMES[Y[:400]])
    return model.explain(X[400:407])


def test_a_line_for_each_neighbour_and_one_for_the_null_neighbours(why: Explanation) -> None:
    frame = why.to_frame()
    assert len(frame) == 7 * 13
    np.testing.assert_allclose(frame.groupby("query")["weight"].sum(), 1)
    np.testing.assert_allclose(frame.groupby("query")["share"].sum(), 1)
    third = frame[frame["query"] == 2]
    assert (third["weight"].iloc[:-1].diff().dropna() <= 0).all()
    assert third["id"].iloc[-1] == -1
    assert third["label"].iloc[-1] is None
    by_id = dict(zip(why.ids[2].tolist(), why.distances[2].tolist(), strict=True))
    assert third["distance"].iloc[:-1].tolist() == [by_id[row] for row in third["id"].iloc[:-1]]
    assert set(third["prediction"]) == {why.predictions[2]}


def test_missing_neighbours_are_left_out() -> None:
    model = AttnKNNClassifier(5, weights="distance", random_state=0).fit(X[:30], Y[:30])
    model.forget(range(27))
    assert (model.explain(X[:1]).to_frame()["id"] >= 0).sum() == 3


def test_short_texts_and_tables(why: Explanation) -> None:
    null = f"{why.null.sum(1).mean():.1%}"
    voters = f"12 neighbours and the class means ({null} of the weight)"
    assert repr(why).startswith(f"Explanation of 7 predictions by {voters}: {why.predictions[0]} (")
    assert repr(why).endswith("), …")
    html = why._repr_html_()
    assert html.count("<table") == 5
    assert "and 2 more predictions" in html
    assert "&lt;" in html
    assert not any(f"<{c}>" in html for c in range(10))


def test_plots(why: Explanation) -> None:
    bars = why.plot(1, n=4)
    assert [bar.get_width() for bar in bars.axes[0].patches] == pytest.approx(
        (100 * np.sort(why.weights[1])[::-1][:4]).tolist()
    )
    digits = np.uint8(X.reshape(-1, 8, 8) * 15)
    pictures = why.with_images(digits, digits[400:407]).plot(1, n=4)
    assert len(pictures.axes) == 5
    np.testing.assert_array_equal(pictures.axes[0].images[0].get_array(), digits[401])
    shuffled = pd.Series(list(digits), index=np.arange(400 + 1397)[::-1])  # by position, whatever its index
    by_series = why.with_images(shuffled, digits[400:407]).plot(1, n=4)
    assert as_png(by_series) == as_png(pictures)
    assert f"class means: {100 * why.null[1].sum():.1f}%" in pictures._suptitle.get_text()
    heaviest = why.ids[1, why.weights[1].argmax()]
    np.testing.assert_array_equal(pictures.axes[1].images[0].get_array(), digits[heaviest])
    assert len(as_png(pictures)) > 2000
    with pytest.raises(InputError, match="n: 0; give 1 or more"):
        why.plot(0, n=0)
    with pytest.raises(InputError, match="queries: 1 pictures of 7 queries"):
        why.with_images(digits, digits[:1])
    with pytest.raises(InputError, match="images: 3; a neighbour has id"):
        why.with_images(digits[:3])
    with pytest.raises(InputError, match="images: none for a row of the memory"):
        why.with_images({}).plot(0)
    with pytest.raises(InputError, match=r"images: ndarray of shape \(64,\)"):
        why.with_images(X).plot(0)
    with pytest.raises(InputError, match="query: 7; give a position below 7"):
        why.plot(7)


def test_pictures_of_files_in_notebooks(why: Explanation, tmp_path: Path) -> None:
    paths = [tmp_path / f"{row}.png" for row in range(400)]
    for row, path in enumerate(paths):
        Image.fromarray(np.uint8(X[row].reshape(8, 8) * 15)).save(path)
    html = why.with_images([*map(str, paths)], X[400:407].reshape(-1, 8, 8))._repr_html_()
    heaviest = why.ids[0, np.argsort(-why.weights[0])[:8]]
    urls = re.findall('data:image/png;base64,([^"]+)', html)
    assert len(urls) == 5 * 9
    shown = [np.asarray(Image.open(BytesIO(b64decode(url)))) for url in urls]
    np.testing.assert_array_equal(shown[0], np.uint8(X[400].reshape(8, 8) * 255 / X[400].max()))
    np.testing.assert_array_equal(shown[1:9], [np.asarray(Image.open(paths[row])) for row in heaviest])
    with pytest.raises(InputError, match=r"gone\.png: cannot be read"):
        why.with_images(["gone.png"] * 400).plot(0)


def test_through_a_pipeline_and_a_search() -> None:
    scaler = StandardScaler().fit(X[:300])
    plain = AttnKNNClassifier(8, weights="distance", random_state=0).fit(scaler.transform(X[:300]), Y[:300])
    pipe = make_pipeline(StandardScaler(), AttnKNNClassifier(8, weights="distance", random_state=0)).fit(
        X[:300], Y[:300]
    )
    search = GridSearchCV(pipe, {"attnknnclassifier__n_neighbors": [8]}, cv=2).fit(X[:300], Y[:300])
    Z = scaler.transform(X[300:320])
    for estimator, rows in ((pipe, X[300:320]), (search, X[300:320]), (plain, Z)):
        np.testing.assert_allclose(attnknn.explain(estimator, rows).weights, plain.explain(Z).weights)
        np.testing.assert_array_equal(attnknn.predict_set(estimator, rows, 0.2), plain.predict_set(Z, 0.2))
        np.testing.assert_allclose(attnknn.novelty(estimator, rows), plain.novelty(Z))
    with pytest.raises(InputError, match="estimator: StandardScaler; give one that ends with AttnKNNClassifier"):
        attnknn.explain(make_pipeline(scaler), X)

"""A classifier with its rows in a Lance table: as one with all in memory, from any source, and through every change."""

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.app.model.examples import Examples
from attnknn.app.model.inputs import Vectors
from attnknn.app.model.model import Model
from attnknn.classifier import table_memory
from attnknn.classifier.memory import Memory
from attnknn.classifier.table_memory import TableMemory
from attnknn.core.errors import InputError
from attnknn.index import faiss_index, lance_bank, lance_rows
from attnknn.index.lance_bank import LanceBank
from attnknn.index.lance_table import Block

DIGITS, NUMBERS = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(DIGITS))
JITTER = np.random.default_rng(1).normal(scale=0.01, size=DIGITS.shape)  # no two distances are equal
X, Y = (DIGITS + JITTER)[ORDER].astype(np.float32), NUMBERS[ORDER].astype(str)
TRAIN, HELD, TEST = slice(0, 900), slice(900, 1100), slice(1100, 1400)
HELD_OUT = X[HELD], Y[HELD]
PARAMS: dict[str, Any] = {"random_state": 0, "max_iter": 20}


def model(folder: Path, **params: Any) -> AttnKNNClassifier:
    return AttnKNNClassifier(**{"storage": folder / "rows.lance", **PARAMS, **params})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> AttnKNNClassifier:
    """A classifier that no test changes."""
    return model(tmp_path_factory.mktemp("table")).fit(X[TRAIN], Y[TRAIN])


@pytest.fixture
def own(fitted: AttnKNNClassifier, tmp_path: Path) -> AttnKNNClassifier:
    """A copy of the classifier and its table."""
    fitted.save(tmp_path / "m")
    shutil.copytree(str(fitted.storage), tmp_path / "rows.lance")
    return AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[[], Any]) -> None:
    """Let another change the table once, just before this function is called."""
    function = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        change()
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


def in_memory(table: AttnKNNClassifier, rows: np.ndarray) -> Memory:
    """Memory in arrays of these rows of X, all others left out."""
    y = np.searchsorted(table.classes_, Y[rows])
    return Memory.build(X[rows], y, np.ones(len(rows)), len(table.classes_))


@pytest.mark.parametrize("params", [{}, {"metric": "cosine"}, {"weights": "distance"}, {"null_scores": "means"}])
def test_the_same_head_as_in_memory(tmp_path: Path, params: dict[str, Any]) -> None:
    if "null_scores" not in params and "weights" not in params:
        params = {**params, "null_scores": "shares"}
    expected = AttnKNNClassifier(**PARAMS, **params).fit(X[TRAIN], Y[TRAIN], held_out=HELD_OUT)
    table = model(tmp_path, **params).fit(X[TRAIN], Y[TRAIN], held_out=HELD_OUT)
    np.testing.assert_allclose(table.predict_proba(X[TEST]), expected.predict_proba(X[TEST]), atol=1e-4)
    np.testing.assert_array_equal(table.predict_set(X[TEST]), expected.predict_set(X[TEST]))
    np.testing.assert_allclose(table.usual_distances_, expected.usual_distances_, rtol=1e-4)
    own, other = table.explain(X[TEST]), expected.explain(X[TEST])
    np.testing.assert_array_equal(own.ids, other.ids)
    np.testing.assert_array_equal(own.labels, other.labels)
    np.testing.assert_allclose(own.weights, other.weights, atol=1e-4)
    assert not own.added.any()


def blocks_of(step: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return ((X[s : min(s + step, 900)], Y[s : min(s + step, 900)]) for s in range(0, 900, step))


def frame() -> pd.DataFrame:
    return pd.DataFrame(X[TRAIN], columns=[f"pixel{i}" for i in range(64)]).assign(digit=Y[TRAIN])


def arrays(folder: Path) -> tuple[Any, Any]:
    np.save(folder / "x.npy", X[TRAIN])
    np.save(folder / "y.npy", Y[TRAIN])
    return str(folder / "x.npy"), folder / "y.npy"


def parquet(folder: Path) -> tuple[Any, Any]:
    frame().to_parquet(folder / "digits.parquet")
    return folder / "digits.parquet", "digit"


def vectors(folder: Path) -> tuple[Any, Any]:
    rows = pd.DataFrame({"vector": list(X[TRAIN]), "digit": Y[TRAIN]})
    lance.write_dataset(rows, str(folder / "digits"))
    return folder / "digits", "digit"


def same_table(folder: Path) -> tuple[Any, Any]:
    TableMemory.write(str(folder / "rows.lance"), blocks_of(333))
    return None, None


SOURCES: list[Callable[[Path], tuple[Any, Any]]] = [
    lambda _: (blocks_of(77), None),
    lambda _: (frame().drop(columns="digit"), Y[TRAIN].tolist()),
    arrays,
    parquet,
    vectors,
    same_table,
]


@pytest.mark.parametrize("source", SOURCES)
def test_any_source_of_the_same_rows(
    fitted: AttnKNNClassifier, tmp_path: Path, source: Callable[[Path], tuple[Any, Any]]
) -> None:
    other = model(tmp_path).fit(*source(tmp_path))
    rows = pd.DataFrame(X[TEST], columns=frame().columns[:-1]) if hasattr(other, "feature_names_in_") else X[TEST]
    np.testing.assert_allclose(other.predict_proba(rows), fitted.predict_proba(X[TEST]), atol=1e-6)
    assert other.n_features_in_ == 64


def test_statistics_do_not_know_the_labels_of_held_out_rows(tmp_path: Path) -> None:
    """Random labels: a head that saw a query's label in its neighbours' agreement would be confident."""
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=(1500, 3)), rng.integers(2, size=1500)
    table = model(tmp_path, n_neighbors=10, max_iter=100, null_scores="shares").fit(z[:1000], y[:1000])
    probabilities = table.predict_proba(z[1000:])
    assert -np.log(probabilities[np.arange(500), y[1000:]]).mean() < np.log(2) + 0.01
    assert table.predict_proba(z[:1000]).max() < 0.7


def test_copies_of_held_out_rows_are_not_their_neighbours(tmp_path: Path) -> None:
    z, y = np.concatenate([X[:300], X[:900]]), np.concatenate([Y[:300], Y[:900]])
    table = model(tmp_path).fit(z, y)
    assert table.usual_distances_.min() > 0
    every_row = model(tmp_path / "b").fit(np.repeat(X[:300], 4, axis=0), np.repeat(Y[:300], 4))
    assert np.median(every_row.usual_distances_) == 0


def test_a_folder_of_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "rows.lance").mkdir()
    (tmp_path / "rows.lance" / "keep.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for labels in (Y[:200], np.ones(200)):
        with pytest.raises(ValueError, match="holds other files"):
            model(tmp_path).fit(X[:200], labels)
        with pytest.raises(ValueError, match="is no folder that can be written"):
            model(tmp_path, storage=tmp_path / "file").fit(X[:200], labels)
    assert [path.read_text() for path in (tmp_path / "rows.lance" / "keep.txt", tmp_path / "file")] == ["mine"] * 2
    (tmp_path / "rows.lance" / "keep.txt").unlink()
    with pytest.raises(ValueError, match="a single class"):
        model(tmp_path).fit(X[:200], np.ones(200))
    assert len(model(tmp_path).fit(X[:200], Y[:200]).memory_) == 200


def test_added_rows_have_statistics_and_are_marked(own: AttnKNNClassifier) -> None:
    own.partial_fit(X[HELD], Y[HELD])
    memory = own.memory_
    assert isinstance(memory, TableMemory)
    rows = np.arange(HELD.stop)
    expected = in_memory(own, rows)
    columns = memory.bank.rows_of(rows, ["agreement", "density", "label"])
    np.testing.assert_array_equal(columns["label"], Y[rows])
    np.testing.assert_allclose(columns["agreement"][HELD], expected.agreement[HELD], atol=1e-6)
    np.testing.assert_allclose(columns["density"][HELD], expected.density[HELD], rtol=1e-5)
    assert np.abs(columns["agreement"][TRAIN] - expected.agreement[TRAIN]).max() > 0.01
    explanation = own.explain(X[TEST])
    np.testing.assert_array_equal(explanation.added, explanation.ids >= HELD.start)
    assert explanation.added.any()

    own.update_statistics()
    columns = memory.bank.rows_of(rows, ["agreement", "density"])
    np.testing.assert_allclose(columns["agreement"], expected.agreement, atol=1e-6)
    np.testing.assert_allclose(columns["density"], expected.density, rtol=1e-5)
    assert not own.explain(X[TEST]).added.any()
    for values, other in zip(memory.classes(), in_memory(own, rows).classes(), strict=True):
        assert values.shape == other.shape
    np.testing.assert_allclose(memory.classes()[0], expected.classes()[0], atol=1e-6)


def test_forgotten_rows_are_gone_from_files_and_probabilities(own: AttnKNNClassifier, tmp_path: Path) -> None:
    other = AttnKNNClassifier.load(tmp_path / "m", storage=own.memory_.bank.table.uri)  # type: ignore[attr-defined]
    own.forget([3, 5, 3])
    pattern = X[3].tobytes()
    assert not [
        path for path in (tmp_path / "rows.lance").rglob("*") if path.is_file() and pattern in path.read_bytes()
    ]
    assert not np.isin(own.explain(X[TEST]).ids, [3, 5]).any()
    assert len(own.memory_) == 898
    np.testing.assert_allclose(own.memory_.sums.sum(0), np.delete(X[TRAIN], [3, 5], 0).sum(0, dtype=float))
    with pytest.raises(ValueError, match="ids: 5 not in the bank"):
        own.forget([5])
    with pytest.raises(ValueError, match="load the model that changed it last"):
        other.partial_fit(X[HELD], Y[HELD])
    with pytest.raises(ValueError, match="rows were forgotten since, or the table was moved: load the model again"):
        other.predict(X[TEST])
    again = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")  # its version was deleted
    np.testing.assert_allclose(again.predict_proba(X[TEST]), own.predict_proba(X[TEST]), atol=1e-12)


def test_leave_one_out_explanations_and_counterfactuals(own: AttnKNNClassifier) -> None:
    own.update_statistics()
    memory = in_memory(own, np.arange(900))
    expected = pickle.loads(pickle.dumps(own))
    expected.memory_ = memory
    row = own.explain_rows([7])
    assert 7 not in row.ids
    nearest, batch = own.memory_.retrieve(X[7:8], 50, ("agreement", "density"), without=[7])
    other, other_batch = memory.retrieve(X[7:8], 50, ("agreement", "density"), without=[7])
    np.testing.assert_array_equal(nearest.ids, other.ids)
    np.testing.assert_allclose(batch.require("agreement"), other_batch.require("agreement"), atol=1e-6)
    unit = own.memory_.unit
    np.testing.assert_allclose(batch.sims * unit**2, other_batch.sims, rtol=1e-5)
    np.testing.assert_allclose(batch.require("density") * unit**2, other_batch.require("density"), rtol=1e-5)
    (change,) = own.counterfactual(X[1100:1101], most=3)
    assert len(change.ids) <= 3
    distances, ids = own.kneighbors(X[TEST], 3)
    np.testing.assert_array_equal(ids, own.explain(X[TEST]).ids[:, :3])
    np.testing.assert_allclose(distances[:, 0], np.linalg.norm(X[TEST] - X[ids[:, 0]], axis=1), rtol=1e-5)


def test_save_load_and_pickle(fitted: AttnKNNClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m")
    probabilities = fitted.predict_proba(X[TEST])
    for copy in (AttnKNNClassifier.load(tmp_path / "m"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(copy.predict_proba(X[TEST]), probabilities)
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"model.json", "arrays.safetensors"}
    with pytest.raises(ValueError, match=r"no Lance table .* give its address to `load`"):
        AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "nowhere")


def failing() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield X[TRAIN], Y[TRAIN]
    yield X[HELD, 1:], Y[HELD]


@pytest.mark.parametrize(
    ("params", "rows", "message"),
    [
        ({}, (failing(), None), "63 features"),
        ({}, ([(X[TRAIN], np.ones(900))], None), "a single class"),
        ({}, ([(X[:2], Y[:2]), (X[:2] * np.nan, Y[:2])], None), "NaN"),
        ({}, ([(X[:9], Y[:9]), (X[:9], np.arange(9))], None), "column label is"),
        ({}, (X[TRAIN] + 1e7, Y[TRAIN]), "far from 0 beside their spread"),
        ({}, (X[TRAIN], Y[TEST]), "300 labels for 900 rows"),
        ({}, ([], None), "no rows"),
        ({}, ("nowhere.parquet", "y"), "nowhere.parquet: no Parquet file or Lance table"),
        ({}, ("nowhere.npy", Y), "nowhere.npy"),
        ({}, ("nowhere", Y), "give the name of the column of labels"),
        ({}, (None, None), "no Lance table"),
        ({"metric": "cosine"}, (None, None), "give them as X"),
        ({"label_noise": "auto"}, (X[TRAIN], Y[TRAIN]), "storage: takes no"),
        ({"index": "hnsw"}, (X[TRAIN], Y[TRAIN]), "storage: takes no index hnsw"),
        ({}, (X[TRAIN], None), "pairs of blocks"),
        ({}, (5, None), "pairs of blocks"),
        ({}, (X[TRAIN], "y"), "X is an array"),
        ({}, (None, Y[TRAIN]), "leave y None"),
        ({"null_scores": "linear"}, (X[TRAIN], Y[TRAIN]), "null_scores: linear"),
        ({"storage": 3}, (X[TRAIN], Y[TRAIN]), "storage"),
        ({"storage": "s4://bucket/rows"}, (X[TRAIN], Y[TRAIN]), "s4://bucket/rows: Unrecognized filesystem type"),
        ({"storage": "/dev/null/rows"}, (X[TRAIN], Y[TRAIN]), "/dev/null is no folder that can be written"),
        ({"storage": "s3://"}, (X[TRAIN], Y[TRAIN]), "s3://: no bucket"),
        ({"storage": "."}, (X[TRAIN], Y[TRAIN]), "the working directory"),
        ({"storage": "a\0b"}, (X[TRAIN], Y[TRAIN]), "null byte; give another path"),
        ({}, ("n" * 300, "y"), "File name too long; give another path"),
        ({"storage": None}, ("rows.lance", "y"), "X: the path rows.lance"),
    ],
)
def test_bad_input_leaves_no_table(tmp_path: Path, params: dict[str, Any], rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(tmp_path, **params).fit(*rows)
    assert not list(tmp_path.iterdir())


def test_what_needs_all_rows_in_memory_is_refused(fitted: AttnKNNClassifier) -> None:
    with pytest.raises(ValueError, match="may not fit in memory"):
        fitted.kneighbors()
    with pytest.raises(ValueError, match="with storage take forget"):
        fitted.counterfactual(X[TEST][:1], "relabel")
    with pytest.raises(ValueError, match="exists; give another address"):
        clone(fitted).fit(X[TRAIN], Y[TRAIN])


def test_a_table_of_another_model_is_fitted_again(own: AttnKNNClassifier, tmp_path: Path) -> None:
    assert len(model(tmp_path).fit(None, None).memory_) == len(own.memory_) == 900


def killed(own: AttnKNNClassifier, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Run a change that is interrupted after rows are removed and before other versions are deleted."""
    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, "cleanup_old_versions", lambda *args, **options: 1 / 0)
        with pytest.raises(ValueError, match=r"division by zero; the rows are removed, .* call `forget\(\[\]\)`"):
            change()


def test_a_model_of_an_interrupted_change_goes_on(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(own, monkeypatch, lambda: own.forget([3]))
    assert len(own.memory_) == 899  # the same process goes on
    assert 3 not in own.explain(X[TEST]).ids
    other = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")  # another had it killed
    assert len(other.memory_) == 900
    with pytest.raises(ValueError, match="in Python: load, update_statistics, save"):
        other.forget([5])
    other.update_statistics()
    assert len(other.memory_) == 899
    other.forget([])
    files = [path for path in (tmp_path / "rows.lance").rglob("*") if path.is_file()]
    assert not [path for path in files if X[3].tobytes() in path.read_bytes()]
    np.testing.assert_allclose(other.memory_.sums.sum(0), np.delete(X[TRAIN], 3, 0).sum(0, dtype=float))


def test_a_change_that_failed_before_its_rows_were_written_can_be_repeated(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LanceBank, "add", lambda *args, **columns: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            own.partial_fit(X[HELD], Y[HELD])
    other = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")
    assert len(other.partial_fit(X[HELD], Y[HELD]).memory_) == 900 + len(X[HELD])
    with pytest.raises(ValueError, match="changed since version"):
        own.partial_fit(X[HELD], Y[HELD])


def test_an_interrupted_addition_is_whole(own: AttnKNNClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    add = LanceBank.add

    def interrupted(*args: Any, **columns: Any) -> None:
        add(*args, **columns)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LanceBank, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.partial_fit(X[HELD], Y[HELD])
    assert len(own.memory_) == 900 + len(X[HELD])
    assert len(own.partial_fit(X[TEST], Y[TEST]).memory_) == 900 + len(X[HELD]) + len(X[TEST])
    assert len(np.unique(own.explain(X[TEST]).ids)) > 2


def test_rows_that_another_adds_during_a_removal_are_counted(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")
    before(monkeypatch, table_memory, "erase", lambda: other.partial_fit(X[HELD], Y[HELD]))
    own.forget([3])
    expected = np.concatenate([np.delete(X[TRAIN], 3, 0), X[HELD]]).sum(0, dtype=float)
    np.testing.assert_allclose(own.memory_.sums.sum(0), expected)
    own.save(tmp_path / "m")
    assert len(AttnKNNClassifier.load(tmp_path / "m").memory_) == len(own.memory_) == 899 + len(X[HELD])


def test_rows_added_by_a_model_that_was_not_saved_are_taken(own: AttnKNNClassifier, tmp_path: Path) -> None:
    own.partial_fit(X[HELD], Y[HELD])
    other = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")
    other.update_statistics().partial_fit(X[TEST], Y[TEST])
    assert np.array_equal(other.memory_.bank.rows_of(np.arange(1400), ["label"])["label"], Y[:1400])  # type: ignore[attr-defined]
    assert len(other.memory_) == 1400


def test_another_table_at_the_address_is_refused(own: AttnKNNClassifier, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "rows.lance")
    model(tmp_path).fit(X[HELD], Y[HELD])
    with pytest.raises(ValueError, match="another table than this model's"):
        AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")


def test_a_relative_address_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = AttnKNNClassifier(storage="rows.lance", **PARAMS).fit(X[TRAIN], Y[TRAIN])
    table.save("m")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    table.forget([1]).partial_fit(X[HELD], Y[HELD])
    np.testing.assert_allclose(
        AttnKNNClassifier.load("../m").update_statistics().predict_proba(X[TEST]),
        table.update_statistics().predict_proba(X[TEST]),
        atol=1e-9,
    )


@pytest.mark.parametrize("labels", [np.int8, np.int32, np.float32, bool, str])
def test_labels_keep_their_type(tmp_path: Path, labels: type) -> None:
    y = (NUMBERS[ORDER] > 4).astype(labels)
    table = model(tmp_path).fit(X[TRAIN], y[TRAIN])
    assert table.classes_.dtype == y.dtype
    assert len(table.partial_fit(X[HELD], y[HELD]).memory_) == 1100
    assert (table.predict(X[HELD]) == y[HELD]).mean() > 0.9


def test_blocks_of_any_size_and_width_of_labels(tmp_path: Path) -> None:
    y = NUMBERS[ORDER]
    parts = [(X[:400], y[:400].astype(np.int32)), (X[:0], y[:0]), (X[400:401], y[400:401]), (X[401:900], y[401:900])]
    table = model(tmp_path).fit(iter(parts), None)
    assert len(table.memory_) == 900
    np.testing.assert_array_equal(table.classes_, np.arange(10))
    with pytest.raises(ValueError, match="column label is int32"):
        model(tmp_path / "b").fit([parts[0], (X[:9], np.full(9, 2**40))], None)
    with pytest.raises(ValueError, match="2 rows; at least four"):
        model(tmp_path / "c").fit(X[:2], [0, 1])
    for n in range(4, 9):
        assert len(model(tmp_path / str(n)).fit(X[:n], np.arange(n) % 2).memory_) == n


def test_a_table_by_inner_product_is_refused(tmp_path: Path) -> None:
    rows = [Block(X[TRAIN], np.arange(900), {"label": Y[TRAIN]})]
    LanceBank.build(tmp_path / "rows.lance", rows, metric="ip")
    with pytest.raises(ValueError, match="of metric ip"):
        model(tmp_path).fit(None, None)


def test_rows_of_few_values_can_be_forgotten(tmp_path: Path) -> None:
    """Their bytes occur by chance, in two rows that are neighbours in a file."""
    rng = np.random.default_rng(0)
    for i, z in enumerate((rng.integers(4, size=(300, 5)) * (rng.random((300, 5)) < 0.3), np.arange(300)[:, None])):
        table = model(tmp_path / str(i), n_neighbors=5).fit(z, z[:, 0] > 1)
        assert len(table.forget([1, 2, 3]).memory_) == 297


def test_all_neighbours_that_are_asked_for(fitted: AttnKNNClassifier, tmp_path: Path) -> None:
    table = model(tmp_path).fit(np.repeat(X[:900], 15, axis=0), np.repeat(Y[:900], 15), held_out=HELD_OUT)
    bank = table.memory_.bank  # type: ignore[attr-defined]
    assert bank.n_lists > 1
    distances, ids = table.kneighbors(X[TEST][:3], 13_000)
    assert np.isfinite(distances).all()
    assert ids.min() == 0


def test_ids_are_not_used_again_by_another_model(own: AttnKNNClassifier, tmp_path: Path) -> None:
    other = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")
    own.partial_fit(X[HELD][:2], Y[HELD][:2]).forget([901])
    other.update_statistics().partial_fit(X[HELD][:1], Y[HELD][:1])
    with pytest.raises(ValueError, match="ids: 901 not in the bank"):
        other.forget([901])
    assert other.memory_.labels_of(np.array([902])).shape == (1,)


def test_a_branch_keeps_its_rows(own: AttnKNNClassifier) -> None:
    uri = own.memory_.bank.table.uri  # type: ignore[attr-defined]
    lance.dataset(uri).create_branch("draft")
    with pytest.raises(ValueError, match="branch draft needs its files"):
        own.forget([5])
    assert lance.dataset(uri).checkout_version(("draft", None)).to_table().num_rows == 900


def test_names_of_columns_are_kept(tmp_path: Path) -> None:
    table = model(tmp_path).fit(*parquet(tmp_path))
    rows = frame().drop(columns="digit")
    np.testing.assert_array_equal(table.feature_names_in_, rows.columns)
    with pytest.raises(ValueError, match="feature names"):
        table.predict(rows[rows.columns[::-1]])


def test_a_row_without_a_vector_is_refused(tmp_path: Path) -> None:
    rows = pd.DataFrame({"vector": [*X[:9], None], "digit": Y[:10]})
    rows.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows.parquet: column vector: 1 rows have none"):
        model(tmp_path).fit(tmp_path / "rows.parquet", "digit")


def test_statistics_are_replaced_by_one_commit(own: AttnKNNClassifier) -> None:
    """A kill between two would leave a table without them, which cannot be read."""
    bank = own.memory_.bank  # type: ignore[attr-defined]
    before = bank.rows_of(np.arange(900), ["agreement"])["agreement"]
    other = bank.with_columns(agreement=before + 1, density=np.arange(900, dtype=np.float32))
    assert other.version == bank.version + 1
    np.testing.assert_array_equal(other.rows_of(np.arange(900), ["agreement"])["agreement"], before + 1)
    np.testing.assert_array_equal(other.nearest(X[:5], 1, columns=["density"])[2]["density"].ravel(), np.arange(5))


@pytest.mark.parametrize("change", ["add", "forget", "update"])
def test_of_two_changes_at_once_one_is_refused(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Both have looked for a newer version before the first changes it."""
    other = AttnKNNClassifier.load(tmp_path / "m", storage=tmp_path / "rows.lance")
    own.partial_fit(X[HELD], Y[HELD])
    monkeypatch.setattr(TableMemory, "_newer", lambda _: False)
    changes = {
        "add": lambda: other.partial_fit(X[HELD], Y[HELD]),
        "forget": lambda: other.forget([3]),
        "update": other.update_statistics,
    }
    with pytest.raises(ValueError, match="another process changed it meanwhile; run again"):
        changes[change]()
    assert len(own.memory_) == len(own.memory_.bank) == len(own.memory_.bank.latest()) == 1100  # type: ignore[attr-defined]


def test_the_last_row_may_be_removed(tmp_path: Path) -> None:
    z, y = np.tile(X[:900], (12, 1)), np.tile(Y[:900], 12)
    table = model(tmp_path).fit(z + np.arange(len(z))[:, None] * np.float32(1e-4), y)
    LanceBank.open(tmp_path / "rows.lance").remove([len(z) - 1])
    assert len(table.update_statistics().memory_) == len(z) - 1


def test_a_class_may_be_forgotten(tmp_path: Path) -> None:
    table = model(tmp_path).fit(X[:200], np.arange(200) < 20)
    table.save(tmp_path / "m")
    table.forget(np.arange(20))
    again = AttnKNNClassifier.load(tmp_path / "m")
    np.testing.assert_allclose(again.predict_proba(X[TEST]), table.predict_proba(X[TEST]), atol=1e-9)


def test_the_index_of_a_data_frame_is_no_column(tmp_path: Path) -> None:
    frame().sample(frac=1, random_state=0).to_parquet(tmp_path / "rows.parquet")
    table = model(tmp_path).fit(tmp_path / "rows.parquet", "digit")
    assert table.n_features_in_ == 64
    frame().assign(pixel3="1").to_parquet(tmp_path / "text.parquet")
    with pytest.raises(ValueError, match="pixel3: not numbers"):
        model(tmp_path / "b").fit(tmp_path / "text.parquet", "digit")


def test_ids_of_an_addition_that_has_begun_are_left_to_it(own: AttnKNNClassifier, tmp_path: Path) -> None:
    """Another model has taken the next ids and not written its rows yet."""
    bank = AttnKNNClassifier.load(tmp_path / "m", storage=own.storage).memory_.bank.with_next_id(902)  # type: ignore[attr-defined]
    added = Model(own, Vectors(X.shape[1]), Examples()).add_vectors(X[TEST], Examples(), Y[TEST])
    assert added == list(range(902, 902 + len(Y[TEST])))
    own.forget([3])
    statistics = {"agreement": np.zeros((2, 3), np.float32), "density": np.zeros(2, np.float32)}
    bank.add(X[900:902], np.arange(900, 902), label=Y[900:902], added=np.ones(2, bool), **statistics)
    own.update_statistics().partial_fit(X[:1], Y[:1])
    ids = own.memory_.bank.table.to_table(columns=["id"])["id"].to_numpy()  # type: ignore[attr-defined]
    assert sorted(ids) == sorted({*range(1203)} - {3})
    expected = np.concatenate([X[TRAIN], X[900:902], X[TEST], X[:1]]).sum(0, dtype=float) - X[3]
    np.testing.assert_allclose(own.memory_.sums.sum(0), expected)


@pytest.mark.parametrize("change", ["add", "forget"])
def test_changes_by_another_while_statistics_are_computed(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    other = AttnKNNClassifier.load(tmp_path / "m", storage=own.storage)
    changes = {"add": lambda: other.partial_fit(X[TEST], Y[TEST]), "forget": lambda: other.forget(np.arange(200))}
    before(monkeypatch, table_memory, "run_tasks", changes[change])
    if change == "forget":  # deletes files that are being read
        with pytest.raises(ValueError, match=r"again$"):
            own.update_statistics()
    own.update_statistics()
    assert len(own.memory_) == len(own.memory_.bank) == len(other.memory_)
    np.testing.assert_allclose(own.memory_.sums, other.memory_.sums, atol=1e-3)
    own.save(tmp_path / "again")
    own.forget([500]).partial_fit(X[:1], Y[:1])


def test_a_flat_index_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_bank, "_UNINDEXED", 100)
    monkeypatch.setattr(faiss_index, "n_probes", lambda lists, nprobe=0: 1)
    monkeypatch.setattr(lance_rows, "n_probes", lambda lists, nprobe=0: 1)
    exact = model(tmp_path / "a", index="flat", max_iter=2).fit(X[TRAIN], Y[TRAIN])
    exact.save(tmp_path / "m")
    auto = model(tmp_path / "b", max_iter=2).fit(X[TRAIN], Y[TRAIN])
    distances = np.sort(cdist(X[TEST], X[TRAIN]), axis=1)[:, :20]
    for one, equal in ((exact, True), (AttnKNNClassifier.load(tmp_path / "m"), True), (auto, False)):
        assert one.memory_.bank.n_lists > 1
        own, _ = one.kneighbors(X[TEST], 20)
        assert np.allclose(own, distances, atol=1e-2) == equal
    exact.partial_fit(X[HELD], Y[HELD]).forget(np.arange(50))
    own, _ = exact.kneighbors(X[TEST], 20)
    np.testing.assert_allclose(own, np.sort(cdist(X[TEST], X[50:1100]), axis=1)[:, :20], atol=1e-2)


@pytest.mark.parametrize("moment", ["before it is checked", "before rows are removed"])
def test_a_refused_removal_does_not_say_that_rows_are_gone(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    other = AttnKNNClassifier.load(tmp_path / "m", storage=own.storage)
    owner, name = (TableMemory, "_unchanged") if moment.startswith("before it") else (table_memory, "erase")
    before(monkeypatch, owner, name, lambda: other.forget(np.arange(100, 150)))
    with pytest.raises(ValueError, match=r"again|changed since version") as refused:
        own.forget([3, 4])
    assert isinstance(refused.value, InputError)
    assert "are removed" not in str(refused.value)
    assert own.memory_.bank.latest().count([3, 4]) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("later", [0, 3])
def test_rows_that_statistics_did_not_see_are_marked(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """Another model takes ids before, and writes its rows after; also if rows of later ids are seen."""
    other = AttnKNNClassifier.load(tmp_path / "m", storage=own.storage)
    rows = slice(1100, 1100 + later)
    changes = (lambda: own.partial_fit(X[rows], Y[rows]).update_statistics()) if later else own.update_statistics
    before(monkeypatch, LanceBank, "add", changes)
    other.partial_fit(X[HELD], Y[HELD])
    own.memory_.take_latest()  # type: ignore[attr-defined]
    why = own.explain(X[HELD])
    np.testing.assert_array_equal(why.added, (why.ids >= 900) & (why.ids < 900 + len(X[HELD])))
    assert why.added.any()


def test_changes_by_another_that_cancel_in_number_are_counted(
    own: AttnKNNClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = AttnKNNClassifier.load(tmp_path / "m", storage=own.storage)
    rows = slice(1100, 1103)
    before(monkeypatch, LanceBank, "add", lambda: other.partial_fit(X[rows], Y[rows]).forget([0, 1, 2]))
    own.partial_fit(X[HELD], Y[HELD])
    np.testing.assert_allclose(own.memory_.sums.sum(0), X[3:1103].sum(0, dtype=float))
    counts = np.unique(Y[3:1103], return_counts=True)[1]
    np.testing.assert_array_equal(own.memory_.counts, counts)  # type: ignore[attr-defined]

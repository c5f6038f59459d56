"""Sources → raw files → `Split`: parts, pixels and columns."""

import gzip
import hashlib
import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_digits
from synthetic_models import tar

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.duplicates import duplicate_counts, first_identical, split_groups
from attnknn.core.errors import InputError
from attnknn.data.download import download
from attnknn.data.schema import Schema
from attnknn.data.split import assign_parts, part_counts, prepare, prepare_repeats, subset_rows
from import_closure import ROOT

SHARES = {"test": 0.2, "val": 0.1, "fit": 0.1}


def save(path: Path, pixels) -> None:
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)


def image_tree(folder: Path, parts=("train", "test"), n=5, shape=(3, 2)) -> Path:
    """<part>/<class>/<i>.png with every pixel 10·class + i, plus 100 in test."""
    for p, part in enumerate(parts):
        for c, name in enumerate(("cat", "dog")):
            target = folder / part / name
            target.mkdir(parents=True)
            for i in range(n):
                save(target / f"{i}.png", np.full(shape, 100 * p + 10 * c + i))
    return folder


def make(source: dict, tmp_path: Path, seed: int = 0, mirror: str = "", **shares) -> Split:
    download(source, tmp_path / "raw", mirror)
    return prepare(source, tmp_path / "raw", seed, **{**SHARES, **shares})


def test_part_counts_by_hand():
    # (bank, fit, val, test); 0.2 · 50 = 10 test rows, then 0.1 of the other 40.
    assert part_counts(50, **SHARES) == (32, 4, 4, 10)
    assert part_counts(100, test=0.29, val=0.5, fit=0.25) == (19, 17, 35, 29)
    assert part_counts(4, **SHARES) == (1, 1, 1, 1)
    assert part_counts(3, **SHARES)[0] == 0
    assert part_counts(20, test=0.0, val=0.1, fit=0.2) == (14, 4, 2, 0)


def test_parts_are_stratified_and_seeded():
    y = np.repeat([0, 1, 2], [50, 20, 4])
    np.random.default_rng(5).shuffle(y)
    part = assign_parts(y, ("a", "b", "c"), 7, **SHARES)
    table = [[int(((y == c) & (part == p)).sum()) for p in (BANK, FIT, VAL, TEST)] for c in range(3)]
    assert table == [[32, 4, 4, 10], [14, 1, 1, 4], [1, 1, 1, 1]]
    assert part.tobytes() == assign_parts(y, ("a", "b", "c"), 7, **SHARES).tobytes()
    assert not np.array_equal(part, assign_parts(y, ("a", "b", "c"), 8, **SHARES))
    other = assign_parts(y, ("a", "b", "c"), 7, test=0.2, val=0.4, fit=0.1)
    np.testing.assert_array_equal(part == TEST, other == TEST, "test rows do not depend on the other shares")
    y, official = np.tile([0, 1], 30), np.arange(60) >= 40
    parts = [assign_parts(y, ("a", "b"), seed, **SHARES, official=official) for seed in (1, 2)]
    for part in parts:
        np.testing.assert_array_equal(part == TEST, official)
        assert np.bincount(part).tolist() == [32, 4, 4, 20]
    assert not np.array_equal(*parts)


def test_identical_rows_have_one_part():
    y = np.repeat([0, 1], [90, 60])
    first, official = np.arange(150) % 75, np.arange(150) < 50  # two of each, some with another label

    def parts(**more):
        return assign_parts(y, ("a", "b"), 7, **SHARES, **more)

    np.testing.assert_array_equal(parts(first=first), parts(first=first)[first])
    assert np.bincount(parts(first=first), minlength=4).min() >= 9
    np.testing.assert_array_equal(parts(first=np.arange(150)), parts())
    part = parts(official=official, first=first)
    np.testing.assert_array_equal(part == TEST, official)
    np.testing.assert_array_equal(part[50:75], part[125:])
    np.testing.assert_array_equal(parts(first=split_groups(np.arange(150) % 74, np.zeros(150))), parts())


def test_duplicates_of_a_source_have_one_part(tmp_path):
    """Written otherwise, or saved under other names; an id column does not tell rows apart."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 200, (60, 2))
    rows = [f"id{i},{a},{b},{'xy'[i % 2]}" for i, (a, b) in enumerate(x)]
    rows += [f"id{60 + i},{a}.0,{b},{'xy'[i % 2]}" for i, (a, b) in enumerate(x)]
    (tmp_path / "t.csv").write_text("\n".join(["id,a,b,y", *rows]))
    table = make({"kind": "csv", "train": {"path": str(tmp_path / "t.csv")}, "target": "y"}, tmp_path / "table")
    folder = image_tree(tmp_path / "pets", parts=("",), n=10)
    for path in sorted(folder.rglob("*.png")):
        shutil.copy(path, path.with_name(f"copy-{path.name}"))
    images = make({"kind": "image_folder", "path": str(folder)}, tmp_path / "images")
    for split, n in ((table, 60), (images, 20)):
        first = first_identical(split.x)
        assert len(np.unique(first)) == n
        np.testing.assert_array_equal(split.part, split.part[first])
        expected = {"duplicates": n, "conflicting_duplicates": 0, "test_duplicates": 0}
        assert duplicate_counts(first, split.y, split.part == TEST) == expected


def grouped_table(folder: Path, n: int = 90, classes: str = "xy") -> dict:
    """Three rows of each patient with classes in turn, so that a patient has several; all values differ."""
    rows = [f"p{i // 3},{i * 37 % 101}.5,{classes[i % len(classes)]}" for i in range(n)]
    (folder / "t.csv").write_text("\n".join(["patient,a,y", *rows]))
    return {"kind": "csv", "train": {"path": str(folder / "t.csv")}, "target": "y", "groups": "patient"}


def test_named_groups_have_one_part_and_are_no_feature(tmp_path):
    source = grouped_table(tmp_path)
    split = make(source, tmp_path)
    assert split.features == ("a",)
    assert (split.groups == np.arange(90) // 3).all()
    np.testing.assert_array_equal(split.part, split.part[split.groups * 3])
    assert np.bincount(split.part).tolist() == [63, 6, 6, 15], "of 30 groups, rounded down in each class"
    assert not np.array_equal(split.part, make(source, tmp_path, seed=1).part)
    split.save(tmp_path / "split")
    np.testing.assert_array_equal(Split.load(tmp_path / "split").groups, split.groups)
    assert make({**source, "groups": ""}, tmp_path).groups is None


def test_named_groups_of_mixed_classes_are_never_divided(tmp_path):
    """A class that is drawn for too few groups; with too few groups in all, one line says so."""
    source = grouped_table(tmp_path, 60, "x" * 29 + "y")
    split = make(source, tmp_path)
    np.testing.assert_array_equal(split.part, split.part[split.groups * 3])
    assert np.bincount(split.part).tolist() == [42, 3, 3, 12]
    source = grouped_table(tmp_path, 9)
    with pytest.raises(InputError, match=r"the table has 3 groups; its parts need at least 4; give more, or leave"):
        make(source, tmp_path)


def test_groups_across_official_files_are_the_same_and_must_be_complete(tmp_path):
    source = grouped_table(tmp_path)
    (tmp_path / "test.csv").write_text("patient,a,y\np3,1000,x\nq,1001,y\n")
    source["test"] = {"path": str(tmp_path / "test.csv")}
    split = make(source, tmp_path)
    assert split.groups[-2:].tolist() == [3, 30]
    assert (split.part == TEST).tolist() == [False] * 90 + [True] * 2
    (tmp_path / "test.csv").write_text("patient,a,y\n,1000,x\nq,1001,y\n")
    with pytest.raises(InputError, match=r"^test\.csv line 2: no value in column 'patient', which `groups` names"):
        make(source, tmp_path)
    with pytest.raises(InputError, match=r"^t\.csv: 'doctor' in `groups` is no feature column \(they are patient, a\)"):
        make(source | {"groups": "doctor"}, tmp_path)


def test_subset_keeps_classes_and_the_test_share_in_proportion():
    y, official = np.repeat([0, 1, 0, 1], [60, 20, 15, 5]), np.arange(100) >= 80
    rows = subset_rows(y, official, 20)
    assert (np.diff(rows) > 0).all()
    assert np.bincount(y[rows] + 2 * official[rows]).tolist() == [12, 4, 3, 1]
    np.testing.assert_array_equal(rows, subset_rows(y, official, 20))
    for all_rows in (0, 100, 1000):
        np.testing.assert_array_equal(subset_rows(y, official, all_rows), np.arange(100))
    assert [len(subset_rows(y, None, n)) for n in (1, 33, 99)] == [1, 33, 99]


def test_digits_become_images(tmp_path):
    split = make({"kind": "sklearn", "loader": "digits"}, tmp_path)
    assert (split.x.shape, split.x.dtype) == ((1797, 1, 8, 8), np.uint8)
    raw = load_digits().images
    assert {int(v): int(split.x[:, 0][raw == v][0]) for v in (0, 1, 8, 16)} == {0: 0, 1: 16, 8: 128, 16: 255}
    np.testing.assert_array_equal(split.y, load_digits().target)


def test_iris_counts_and_scaling_and_only_small_tables_are_split_anew(tmp_path):
    """A large table and images are split once: their test rows are not read by ten more splits."""
    iris, digits = ({"kind": "sklearn", "loader": name} for name in ("iris", "digits"))
    split, *others = (make(iris, tmp_path, seed) for seed in range(3))
    assert np.bincount(split.part).tolist() == [97, 12, 12, 29]  # two rows of the last class are identical
    assert split.classes == ("setosa", "versicolor", "virginica")
    assert split.features[0] == "sepal length (cm)"
    bank = split.x[split.rows(BANK)]
    np.testing.assert_allclose(bank.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(bank.std(0), 1, atol=1e-5)
    assert make(iris, tmp_path, subset=60).x.shape == (60, 4)
    anew = prepare_repeats(iris, tmp_path / "raw", range(3), 150, **SHARES)
    assert [s.part.tobytes() for s in anew.values()] == [s.part.tobytes() for s in (split, *others)]
    assert len({s.part.tobytes() for s in anew.values()}) == 3
    assert anew[0].x.tobytes() == split.x.tobytes()
    download(digits, tmp_path / "digits")
    official = {"kind": "csv", "train": {"path": "a.csv"}, "test": {"path": "b.csv"}, "target": "y"}
    for source, folder, seeds, largest in (
        (iris, "raw", range(3), 149),
        (iris, "raw", (), 150),
        (digits, "digits", range(3), 5000),
        (official, "not there", range(3), 5000),
        ({"kind": "image_folder"}, "not there", range(3), 5000),
    ):
        assert prepare_repeats(source, tmp_path / folder, seeds, largest, **SHARES) == {}


def test_folder_and_archives_give_the_same_split(tmp_path):
    folder, wrapped, zipped = image_tree(tmp_path / "pets"), tmp_path / "pets.tar.xz", tmp_path / "pets.zip"
    (folder / ".DS_Store").write_bytes(b"junk")
    with tarfile.open(wrapped, "w:xz") as archive:
        archive.add(folder, "wrapper")
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("__MACOSX/train/cat/0.png", b"junk")
        for path in sorted(folder.rglob("*.png"), reverse=True):  # another order
            file.write(path, path.relative_to(folder))
    sha256 = hashlib.sha256(zipped.read_bytes()).hexdigest()
    first, *others = (
        make({"kind": "image_folder", "path": str(path), **more}, tmp_path / f"out{i}", **{"val": 0.2, "fit": 0.2})
        for i, (path, more) in enumerate([(folder, {}), (wrapped, {}), (zipped, {"sha256": sha256})])
    )
    assert first.x.shape == (20, 1, 3, 2)
    assert first.x[:, 0, 0, 0].tolist() == [*range(5), *range(10, 15), *range(100, 105), *range(110, 115)]
    assert first.y.tolist() == ([0] * 5 + [1] * 5) * 2
    assert (first.part == TEST).tolist() == [False] * 10 + [True] * 10
    for other in others:
        assert (other.x.tobytes(), other.part.tobytes()) == (first.x.tobytes(), first.part.tobytes())
    # A folder packs to one file, of the same bytes whenever.
    (folder / "train" / "cat" / "0.png").touch()
    download({"kind": "image_folder", "path": str(folder)}, tmp_path / "again")
    (packed,) = (tmp_path / "again").iterdir()
    assert packed.name == "pets.tar"
    assert packed.read_bytes() == (tmp_path / "out0" / "raw" / "pets.tar").read_bytes()


def test_class_folders_alone_and_colour_among_grey(tmp_path):
    folder = image_tree(tmp_path / "pets", parts=("",), n=10)
    save(folder / "dog" / "9.png", np.tile(np.array([1, 2, 3]), (3, 2, 1)))
    split = make({"kind": "image_folder", "path": str(folder)}, tmp_path)
    assert split.x.shape == (20, 3, 3, 2)
    assert split.x[19, :, 0, 0].tolist() == [1, 2, 3]
    assert split.x[0:3, :, 0, 0].tolist() == [[0] * 3, [1] * 3, [2] * 3]
    assert np.bincount(split.part).tolist() == [12, 2, 2, 4]


def test_size_resizes_and_subset_decodes_the_right_rows(tmp_path):
    folder = image_tree(tmp_path / "pets", n=20)
    save(folder / "test" / "dog" / "9.png", np.repeat([[0, 200]], 5, axis=1) * np.ones((10, 1)))
    source = {"kind": "image_folder", "path": str(folder), "size": 2}
    whole = make(source, tmp_path)
    assert whole.x.shape == (80, 1, 2, 2)
    # Each half takes in some of the other: nearest-neighbour sampling would give 0 and 200.
    left, right = whole.x[79, 0, 0].astype(int)
    assert 0 < left < 60
    assert abs(left + right - 200) <= 1
    half = make(source, tmp_path, subset=40)
    rows = subset_rows(whole.y, whole.part == TEST, 40)
    np.testing.assert_array_equal(half.x, whole.x[rows])
    assert int((half.part == TEST).sum()) == 20


def test_red_wine_is_in_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    split = make(yaml.safe_load(Path("datasets.yaml").read_text("utf-8"))["winequality_red"]["source"], tmp_path)
    assert (split.x.shape, split.classes, np.bincount(split.y).tolist()) == ((1599, 11), ("< 6", "≥ 6"), [744, 855])
    first = first_identical(split.x)
    assert duplicate_counts(first, split.y, split.part == TEST)["duplicates"] == 240
    np.testing.assert_array_equal(split.part, split.part[first])


def test_csv_with_an_official_test_file(tmp_path):
    rows = [f" {i}, {'ab'[i % 2]}, {'yes' if i % 3 else 'no'}" for i in range(30)]
    (tmp_path / "train.data").write_text("\n".join(rows) + "\n\n")
    (tmp_path / "test.data").write_text("|comment\n" + "\n".join(row + "." for row in rows[:9]) + "\n")
    source = {"kind": "csv", "train": {"path": "train.data"}, "test": {"path": "test.data"}, "target": "y"}
    source |= {"columns": ["n", "c", "y"], "comment": "|", "target_strip": "."}
    split = make(source, tmp_path, mirror=str(tmp_path))
    assert split.classes == ("no", "yes")
    assert split.features == ("c = a", "c = b"), "both files count their rows from 0, which makes no number of it"
    assert list(split.schema["ids"]) == ["n"]
    assert split.y.tolist()[:6] == [0, 1, 1, 0, 1, 1]
    np.testing.assert_array_equal(split.part == TEST, np.arange(39) >= 30)
    split.save(tmp_path / "split")
    assert Split.load(tmp_path / "split").features == split.features


def test_continuous_labels_are_classes_if_named_in_categories(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *(f"{i},{i % 21 / 8}" for i in np.arange(210) * 7 % 211)]))
    source = {"kind": "csv", "train": {"path": "t.csv"}, "target": "y"}
    with pytest.raises(InputError, match=r"^t\.csv, column y: continuous numbers"):
        make(source, tmp_path, mirror=str(tmp_path))
    split = make(source | {"categories": ["y"], "numeric": ["a"]}, tmp_path, mirror=str(tmp_path))
    assert split.classes == tuple(str(i / 8) for i in range(21))


@pytest.mark.parametrize(("labels", "classes"), [(np.int64, ("2", "9", "10")), (np.str_, ("2", "9", "10"))])
@pytest.mark.parametrize("official", [False, True])
def test_arrays_are_kept_as_they_are(tmp_path, labels, classes, official):
    """Of another scale in each column, and with repeated rows, which have one part."""
    rng = np.random.default_rng(0)
    x, y = 3 + rng.normal(size=(90, 4)) * [1, 10, 100, 0], np.resize([2, 9, 10], 90)
    x[45:] = x[:45]
    source, digest = {"kind": "arrays", "x": "x.npy", "y": "y.npy"}, {}
    if official:
        source |= {"test_x": "t.npy", "test_y": "u.npy"}
    arrays = {"x": x, "y": y.astype(labels), "t": x[:9].astype(np.float16), "u": y[:9].astype(labels)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        digest[name] = hashlib.sha256((tmp_path / f"{name}.npy").read_bytes()).hexdigest()
    split = make(source | {"sha256": {"x": digest["x"]}}, tmp_path, mirror=str(tmp_path), numeric="quantile")
    whole = np.concatenate([x.astype(np.float32), x[:9].astype(np.float16)]) if official else x.astype(np.float32)
    np.testing.assert_array_equal(split.x, whole)
    assert split.x.dtype == np.float32
    assert split.classes == classes
    np.testing.assert_array_equal(np.array(split.classes)[split.y].astype(int), np.append(y, y[:9])[: len(whole)])
    if official:
        np.testing.assert_array_equal(split.part == TEST, np.arange(99) >= 90)
    np.testing.assert_array_equal(split.part[:45], split.part[45:90])
    table = pd.DataFrame(whole, columns=list(split.features))
    np.testing.assert_array_equal(Schema.from_dict(split.schema).encode(table), whole)
    assert len(prepare_repeats(source, tmp_path / "raw", [1, 2], 100, **SHARES)) == (0 if official else 2)
    with pytest.raises(InputError, match="wrong sha256"):
        make(source | {"sha256": {"y": digest["x"]}}, tmp_path, mirror=str(tmp_path))


def idx(array: np.ndarray) -> bytes:
    """An IDX file of bytes, gzipped."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


def test_fashion_mnist_from_a_mirror_of_recompressed_files(tmp_path):
    y, images = np.tile(np.arange(10), 5), np.arange(50)[:, None, None] * np.ones((1, 28, 28))
    mirror, md5 = tmp_path / "mirror" / "FashionMNIST", {}
    mirror.mkdir(parents=True)
    for part, x_part, y_part in (("train", images, y), ("t10k", images[:20] + 100, y[:20])):
        for name, array in ((f"{part}-images-idx3-ubyte.gz", x_part), (f"{part}-labels-idx1-ubyte.gz", y_part)):
            (mirror / name).write_bytes(idx(array))
            md5[name] = hashlib.md5((mirror / name).read_bytes()).hexdigest()
    source = {"kind": "torchvision", "name": "FashionMNIST", "md5": md5}
    split = make(source, tmp_path, mirror=str(mirror.parent))
    assert split.x.shape == (70, 1, 28, 28)
    assert split.x[:, 0, 5, 5].tolist() == [*range(50), *range(100, 120)]
    assert split.y.tolist() == [*y, *y[:20]]
    assert split.classes[0] == "T-shirt/top"
    assert (split.part == TEST).tolist() == [False] * 50 + [True] * 20


CIFAR = {  # files of the training and test rows, and of the names; keys of labels and names; folder
    "CIFAR10": ("data_batch_1", "test_batch", "batches.meta", "labels", "label_names", "cifar-10-batches-py"),
    "CIFAR100": ("train", "test", "meta", "fine_labels", "fine_label_names", "cifar-100-python"),
}


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_archives(name, tmp_path, monkeypatch):
    from attnknn.core.torchvision_shim import torchvision

    kind, (train, test, meta, key, names, folder) = getattr(torchvision.datasets, name), CIFAR[name]
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3072), dtype=np.uint8)
    labels = [i % 3 for i in range(60)]
    members = {meta: {names: ["plane", "car", "bird"], "coarse_label_names": ["thing"]}}
    for file, rows in ((train, slice(40)), (test, slice(40, None))):
        members[file] = {"data": pixels[rows], key: labels[rows], "coarse_labels": [0] * len(labels[rows])}
    dumped = {file: pickle.dumps(value, protocol=2) for file, value in members.items()}
    md5 = {file: hashlib.md5(data).hexdigest() for file, data in dumped.items()}
    # The official constants are those of the whole data set; everything else is the real way.
    monkeypatch.setattr(kind, "train_list", [[train, md5[train]]])
    monkeypatch.setattr(kind, "test_list", [[test, md5[test]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5[meta]})
    archive = tar(tmp_path / kind.filename, {f"{folder}/{file}": data for file, data in dumped.items()}, mode="w:gz")
    md5 = {archive.name: hashlib.md5(archive.read_bytes()).hexdigest()}
    split = make({"kind": "torchvision", "name": name, "md5": md5}, tmp_path, mirror=str(tmp_path))
    np.testing.assert_array_equal(split.x, pixels.reshape(60, 3, 32, 32))
    assert split.y.tolist() == labels
    assert split.classes == ("plane", "car", "bird")
    assert (split.part == TEST).tolist() == [False] * 40 + [True] * 20

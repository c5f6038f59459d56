"""Bad data: a one-line error with file and remedy; nothing half-written, earlier results intact."""

import gzip
import hashlib
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic_models import tar

from attnknn.core.errors import InputError
from attnknn.data import read_csv
from attnknn.data.download import download
from attnknn.data.image_folder import list_images, pack_folder, read_images
from attnknn.data.split import assign_parts, prepare

SHARES = {"test": 0.2, "val": 0.1, "fit": 0.1}
PACK = {".tar": bytes, ".tar.gz": gzip.compress, ".tar.xz": lzma.compress}


def png(size=(3, 2), mode="L", colour=7, kind="PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, kind)
    return buffer.getvalue()


def pets(n=6, **more: bytes) -> dict[str, bytes]:
    return {f"{name}/{i}.png": png() for name in ("cat", "dog") for i in range(n)} | more


def refused(source: dict, tmp_path: Path, mirror: str = "") -> str:
    """The error of `download` or `prepare`."""
    with pytest.raises(InputError) as error:
        download(source, tmp_path / "raw", mirror)
        prepare(source, tmp_path / "raw", 0, **SHARES)
    assert "\n" not in str(error.value)
    assert not [path for path in tmp_path.rglob(".*") if path.name.endswith((".draft", ".old"))]
    return str(error.value)


def pack(path: Path, members: dict[str, bytes]) -> Path:
    if path.suffix != ".zip":
        return tar(path, members, mode={".xz": "w:xz", ".gz": "w:gz"}.get(path.suffix, "w"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return path


def refused_images(path: Path) -> str:
    return refused({"kind": "image_folder", "path": str(path)}, path.parent)


def refused_csv(text: str, tmp_path: Path, **source) -> str:
    (tmp_path / "t.csv").write_text(text)
    return refused({"kind": "csv", "train": {"path": str(tmp_path / "t.csv")}, "target": "y", **source}, tmp_path)


def csv(**columns: list) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"


Y = ["no", "yes"] * 10
WRAPPED = {f"wrap/{name}": data for name, data in pets().items()}
OFFICIAL = {f"{part}/{name}": data for part in ("train", "test") for name, data in pets().items()}


@pytest.mark.parametrize(
    ("members", "line"),
    [
        ({f"cat/{i}.png": png() for i in range(6)}, "pets.tar.xz: one class, cat; give at least two"),
        (WRAPPED | {"wrap/emu/": b""}, "class folder wrap/emu is empty; put images into it, or remove it"),
        (OFFICIAL | {"train/emu/": b""}, "class folder train/emu is empty; put images into it, or remove it"),
        (OFFICIAL | {"test/emu/1.png": png()}, "test/emu has images and train/emu has none"),
        (pets() | {"dog/x.png": png(mode="I;16")}, "dog/x.png: I;16 pixels; convert"),
        (pets() | {"dog/x.png": png(size=(12, 11))}, "dog/x.png: refused as too large"),
        (pets() | {"dog/x.png": png(size=(5, 4))}, "dog/x.png is 5×4 and cat/0.png is 3×2; give the source a size"),
        (pets() | {"cat/deep/er/x.png": png()}, "cat/deep/er/x.png is out of place; expected train/<class>/<image>"),
        (pets() | {"../cat/x.png": png()}, "member ../cat/x.png points outside"),
        (pets() | {"/cat/x.png": png()}, "member /cat/x.png points outside"),
        (pets() | {"cat/../../x.png": png()}, "member cat/../../x.png points outside"),
        *(
            (pets() | {"dog/x.png": data}, "pets.tar.xz: dog/x.png: no readable image … replace or remove it")
            for data in (b"no image", png()[:40], png(kind="JPEG", size=(9, 9))[:-9], b"")
        ),
    ],
)
def test_image_archives(members: dict[str, bytes], line: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    message = refused_images(pack(tmp_path / "pets.tar.xz", members))
    for part in line.split(" … "):
        assert part in message


@pytest.mark.parametrize("name", ["pets.zip", "pets.tar.gz"])
def test_large_members_are_not_read_whole(name, tmp_path):
    data = {"cat/x.png": bytes(2**26), "cat/y.bmp": png((5000, 5000), "RGB", kind="BMP"), "dog/z.png": png()}
    names = list_images(pack(tmp_path / name, data)).names
    assert read_images(tmp_path / name, names[1:], 4).tolist()[1] == [[[7] * 4] * 4] * 3
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=f"^{name}: cat/x.png: no readable image; replace or remove it$"):
            read_images(tmp_path / name, names)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_links_are_refused_in_tar_and_zip(tmp_path):
    tar(tmp_path / "pets.tar.xz", pets(), links={"cat/x.png": "/etc/passwd"})
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        member = zipfile.ZipInfo("cat/x.png")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    for name in ("pets.tar.xz", "pets.zip"):
        assert f"{name}: member cat/x.png is neither file nor folder" in refused_images(tmp_path / name)


def test_a_truncated_official_archive(tmp_path):
    names = [f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    data = gzip.compress(np.random.default_rng(0).bytes(1000))[:500]
    for name in names:
        (tmp_path / name).write_bytes(data)
    md5 = dict.fromkeys(names, hashlib.md5(data).hexdigest())
    message = refused({"kind": "torchvision", "name": "MNIST", "md5": md5}, tmp_path, str(tmp_path))
    assert "train-images-idx3-ubyte.gz: missing, truncated or damaged" in message
    assert "download it again" in message
    message = refused({"kind": "torchvision", "name": "MNIST", "md5": {"x.gz": "0"}}, tmp_path)
    assert "md5: x.gz is no file of MNIST; its files are train-images-idx3-ubyte.gz" in message


@pytest.mark.parametrize(
    ("text", "source", "parts"),
    [
        (csv(a=range(20), z=Y), {}, ["t.csv: no target column 'y'", "correct `target`", "a, z"]),
        (csv(a=range(20), b=[""] * 20, y=Y), {}, ["t.csv: column 'b' has no value", "`drop`"]),
        (csv(a=[1, "inf", *range(18)], y=Y), {}, ["t.csv line 3: column 'a' is inf", "finite"]),
        (csv(a=[1, "1e999", *range(18)], y=Y), {}, ["t.csv line 3: column 'a' is 1e999"]),
        (csv(a=range(20), y=["no", "", *Y[2:]]), {}, ["t.csv line 3: no label in column 'y'", "remove the line"]),
        (csv(a=range(21), y=[*Y, "rare"]), {}, ["t.csv, column y: class 'rare' has 1 rows", "at least 4", "more rows"]),
        (csv(a=range(20), y=["no"] * 20), {}, ["t.csv, column y: every row has class 'no'", "two classes"]),
        (csv(a=range(20), y=range(20)), {"rule": {"threshold": 99}}, ["t.csv, column y: every row has class '< 99'"]),
        (csv(a=range(20), y=Y), {"rule": {"threshold": 5}}, ["t.csv line 2: label 'no' is no number", "threshold"]),
        (csv(a=range(20), y=Y), {"rule": {"map": {"no": "n"}}}, ["t.csv line 3: label 'yes' is not in", "add it"]),
        ("a,a,y\n1,2,no\n", {}, ["t.csv: column 'a' appears twice", "rename"]),
        ("a,y\n1,no\n2,no,3\n", {}, ["t.csv line 3: 3 values for 2 columns", "separator ','"]),
        ("1,2,no\n", {"columns": ["a", "y"]}, ["t.csv line 1: 3 values for 2 columns", "`columns`"]),
        (
            csv(a=[f"this is the text of row {i}" for i in range(20)], b=range(20), y=Y),
            {},
            ["t.csv: column 'a' holds texts (such as 'this is the text of row 0')", "embed them", "`drop`"],
        ),
        ("a;y\n1;no\n", {}, ["t.csv: one column with the separator ','; it looks like ';': give `separator` ';'"]),
        ("a,y\n1,no\n", {"drop": ["b"]}, ["t.csv: 'b' in `drop` is no feature column"]),
        ("y\nno\n", {}, ["t.csv: no column beside the target 'y'"]),
        ("a,y\n", {}, ["t.csv: no rows"]),
        ("", {}, ["t.csv: empty", "header line"]),
        ('a,y\n1,"no\n', {}, ["t.csv: no valid CSV"]),
        ("a,y\n1,no\n", {"separator": "::"}, ["t.csv: no valid CSV", "separator"]),
    ],
)
def test_csv(text, source, parts, tmp_path):
    message = refused_csv(text, tmp_path, **source)
    for part in parts:
        assert part in message


def test_sources_that_cannot_be(tmp_path):
    (tmp_path / "u.csv").write_text(csv(b=range(4), y=Y[:4]))
    for path, line in (
        (str(tmp_path / "u.csv"), "u.csv: columns differ from t.csv"),
        ("elsewhere/t.csv", "test.path: elsewhere/t.csv has the file name of train.path"),
    ):
        assert line in refused_csv(csv(a=range(20), y=Y), tmp_path, test={"path": path})
    for path in ("no/such/folder", "images.rar"):
        message = refused({"kind": "image_folder", "path": path}, tmp_path)
        assert f"path: '{path}' is neither a directory nor an archive (.tar," in message


def test_a_class_too_small_for_its_parts_names_the_subset(tmp_path):
    with pytest.raises(InputError, match=r"class 'b' has 2 training rows; its parts need at least 3"):
        official = np.arange(12) == 0
        assign_parts(np.repeat([0, 1], [10, 2]), ("a", "b"), 0, **SHARES, official=official)
    source = {"kind": "sklearn", "loader": "iris"}
    download(source, tmp_path / "raw")
    with pytest.raises(InputError, match=r"iris: class 'setosa' has 3 rows; .*subset: 9 keeps 9 of 150 rows"):
        prepare(source, tmp_path / "raw", 0, **SHARES, subset=9)


@pytest.mark.parametrize("suffix", PACK)
def test_a_tar_cut_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    """Cut between two members a tar is still readable, with images missing; only its closing zero blocks tell."""
    for name, image in pets().items():
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(image)
    whole, part = tmp_path / "whole.tar", tmp_path / f"part{suffix}"
    pack_folder(tmp_path / "pets", whole)
    data = whole.read_bytes()
    end = len(data.rstrip(b"\0")) // 512 * 512 + 512
    for cut in range(end + 512, 512, -512):
        part.write_bytes(PACK[suffix](data[:cut]))
        with pytest.raises(InputError, match=r"part.*: damaged archive"):
            list_images(part)
    for padding in (b"", bytes(4), bytes(512)):  # of the compressed file
        part.write_bytes(PACK[suffix](data[: end + 1024]) + padding)
        assert len(list_images(part).names) == 12


@pytest.mark.parametrize(("kind", "listed"), [(tarfile.LNKTYPE, 13), (b"M", 0), (tarfile.SYMTYPE, 0), (b"6", 0)])
def test_members_of_other_kinds(tmp_path: Path, kind: bytes, listed: int) -> None:
    """Hard links hold an image; others are refused."""
    with tarfile.open(tmp_path / "pets.tar.gz", "w:gz") as archive:
        for name, image in pets().items():
            member = tarfile.TarInfo(name)
            member.size = len(image)
            archive.addfile(member, io.BytesIO(image))
        member = tarfile.TarInfo("cat/x.png")
        member.type, member.linkname = kind, "cat/0.png"
        archive.addfile(member)
    if not listed:
        message = refused_images(tmp_path / "pets.tar.gz")
        assert "pets.tar.gz: member cat/x.png is neither file nor folder; refused" in message
        return
    names = list_images(tmp_path / "pets.tar.gz").names
    assert len(names) == listed
    assert (read_images(tmp_path / "pets.tar.gz", names) == 7).all()


@pytest.mark.parametrize("name", [f"pets{suffix}" for suffix in PACK])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_damaged_header_loses_no_member_silently(name: str, form: int, tmp_path: Path) -> None:
    images = {f"{kind}/{i}{'x' * 120 * (i % 2)}.png": png((40, 30)) for kind in ("ant", "bee", "cat") for i in range(4)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, pax_headers={}) as archive:
        for member, image in images.items():
            header = tarfile.TarInfo(member if form != tarfile.USTAR_FORMAT else member.replace("x", ""))
            header.size = len(image)
            header.pax_headers = {"comment": "12345"} if form == tarfile.PAX_FORMAT else {}
            archive.addfile(header, io.BytesIO(image))
    data = buffer.getvalue()

    def listed(content: bytes) -> int:
        (tmp_path / name).write_bytes(PACK[name.removeprefix("pets")](content))
        return len(list_images(tmp_path / name).names)

    assert listed(data) == listed(data + bytes(10240)) == 12
    damaged = [data.replace(b"bee/2", b"bee/3"), data + data]  # a wrong checksum; two archives in one file
    if form == tarfile.PAX_FORMAT:
        first, *between, last = data.split(b"comment=12345")
        for size in ("abc", "-99", "-1999", "99999999"):
            record = f"size={size:0>8}".encode()
            damaged += [
                data.replace(b"comment=12345", record, 1),
                b"comment=12345".join([first, *between]) + record + last,
            ]
    for content in damaged:
        with pytest.raises(InputError, match=rf"^{name}: damaged archive \([^\n]+\); get the file again"):
            listed(content)


VECTORS = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"x": VECTORS.astype(int)}, "x: x.npy: int64 of shape (20, 3); give floats of shape (rows, columns)"),
        ({"x": VECTORS[0]}, "x: x.npy: float64 of shape (3,); give floats"),
        ({"x": VECTORS * np.inf}, "x: x.npy: NaN or infinite values in float32; leave these rows out"),
        ({"x": VECTORS * 1e300}, "x: x.npy: NaN or infinite values in float32"),
        ({"y": np.arange(19) % 2}, "y: y.npy: int64 of shape (19,); give 20 whole numbers or strings, one a row of x"),
        ({"y": np.arange(20) % 2 / 2}, "y: y.npy: float64 of shape (20,); give 20 whole numbers or strings"),
        ({"y": np.zeros(20, int)}, "y: y.npy: every row has class '0'"),
        ({"test_x": VECTORS[:5, :2], "test_y": np.arange(5) % 2}, "test_x: 2 columns, x has 3"),
        ({"test_x": VECTORS[:5], "test_y": np.arange(4) % 2}, "test_y: test_y.npy: int64 of shape (4,); give 5"),
        ({"x": b"<html>"}, "x.npy: not a readable .npy file"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_arrays(changes: dict, line: str, tmp_path: Path) -> None:
    for name, array in ({"x": VECTORS, "y": np.arange(20) % 2} | changes).items():
        path = tmp_path / f"{name}.npy"
        path.write_bytes(array) if isinstance(array, bytes) else np.save(path, array)
    source = {"kind": "arrays"} | {name: f"{name}.npy" for name in ("x", "y", *changes)}
    assert line in refused(source, tmp_path, mirror=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a;b;c\n1,5;2,5;3\n", ";"),
        ("1,5;2,5;3\n1,6;2,7;4\n", ";"),
        ("a,b\n1,2\n", ","),
        ("a\n1,5\n", ","),
        ("\n" * 55 + "a;b\n1;2\n", ";"),
        ("a|b\n" + "1|2\n" * 20 + "1|2|3\n", "|"),
        ('a;b\n"x\ny;z";2\n', ";"),
    ],
)
def test_separators(text, separator):
    first = read_csv._first_lines(iter(text.splitlines(keepends=True)))
    assert read_csv.detect_separator(first) == separator
    assert read_csv.detect_separator(first, "t.tsv.gz") == "\t"


def test_a_first_line_of_excel_names_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("sep=;\na;b\n1,5;2\n", encoding="utf-8")
    frame = read_csv.read_rows(tmp_path / "t.csv")
    assert frame.to_dict("list") == {"a": ["1,5"], "b": ["2"]}
    assert list(frame.index) == ["t.csv line 3"]

"""Files that cannot be read or written: one error that names the file, and nothing half-written."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from file_limit import file_limit

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.core.errors import InputError, one_line
from attnknn.core.files import load_array, parse_yaml, read_json, save_weights, write_csv, write_json
from attnknn.index.bank import build

FULL = "File too large|No space left on device"  # numpy and safetensors do not tell which

rng = np.random.default_rng(0)
SPLIT = Split(np.zeros((800, 40), np.float32), np.arange(800) % 2, np.repeat([BANK, FIT, VAL, TEST], 200).astype("i1"),
              ("a", "b"), tuple(map(str, range(40))))  # fmt: skip
GRAPH = build(rng.normal(size=(800, 2)), np.arange(800), kind="hnsw")
WRITERS: dict[str, Callable[[Path], None]] = {
    "JSON": lambda path: write_json(path, {"a": [0.1] * 20_000}),
    "CSV": lambda path: write_csv(path, [{"a": "b" * 100}] * 1000),
    "npy": SPLIT.save,
    "FAISS": GRAPH.save,
    "safetensors": lambda path: save_weights(path, {"a": torch.zeros(20_000)}, {}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_what_was_there(writer: str, tmp_path: Path) -> None:
    for size in (20_000, 64):
        with pytest.raises(OSError, match=FULL) as error, file_limit(size):
            WRITERS[writer](tmp_path / "out")
        assert error.value.filename == str(tmp_path / "out")
        line = rf"{tmp_path / 'out'}: ({FULL}); free space there, or write elsewhere"
        assert re.fullmatch(line, str(one_line(error.value)))
        assert list(tmp_path.iterdir()) == []
    WRITERS[writer](tmp_path / "out")


def test_the_last_buffer_of_an_index_is_not_lost(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "out")
    with pytest.raises(OSError, match=FULL), file_limit((tmp_path / "out/index.faiss").stat().st_size - 1):
        GRAPH.save(tmp_path / "out")


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


BROKEN = {
    "cut zip": b"PK\x03\x04" + bytes(50),
    "cut header": header("{'descr': '<f8', 'shape': (2, 2), (\n"),
    "huge": header("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000, 4), }\n") + bytes(64),
    "overflow": header("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999999999), }\n") + bytes(64),
    "objects": header("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n") + bytes(64),
    "no array": b"1,2\n",
    "empty": b"",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("mmap", [True, False])
def test_broken_arrays(content: bytes, mmap: bool, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    message = r"^\S*/a\.npy: not a readable \.npy file \([^\n]+\); write it with numpy\.save$"
    with pytest.raises(InputError, match=message):
        load_array(tmp_path / "a.npy", mmap)


@pytest.mark.parametrize("text", ["null", "[1]", '{"a": NaN}', '{"a": 1e999}', "{", "[" * 100_000, "1" * 5000])
def test_broken_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=r"a\.json: [^\n]*; copy it again$"):
        read_json(tmp_path / "a.json", "copy it again")


VALUES = ("!!python/object/apply:os.getcwd []", "!foo 1", "2024-13-45", "!!timestamp x", "!!bool x", "!!int ''", "[1")


@pytest.mark.parametrize("value", [*VALUES, "9" * 5000])
def test_broken_yaml(value: str) -> None:
    for content in (f"a: {value}\n".encode(), "a: 1\n".encode("utf-16"), "a: 1\n".encode("utf-16-le")):
        with pytest.raises(InputError, match=r"^params\.yaml: not valid YAML in UTF-8 \([^\n]+\); correct it$"):
            parse_yaml(content, Path("params.yaml"))

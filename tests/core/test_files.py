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
from attnknn.core.files import read_json, save_weights, write_csv, write_json
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


@pytest.mark.parametrize("text", ["null", "[1]", '{"a": NaN}', '{"a": 1e999}', "{", "[" * 100_000, "1" * 5000])
def test_broken_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=r"a\.json: [^\n]*; copy it again$"):
        read_json(tmp_path / "a.json", "copy it again")

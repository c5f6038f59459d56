"""The bank of the pipeline in a folder: arrays with a FAISS index, or the address and version of a Lance table."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.errors import require
from attnknn.core.files import atomic_folder, read_json, write_json
from attnknn.index.bank import Bank, build

_TABLE = "rows.lance"  # in the folder of the bank
_BLOCK = 65_536  # rows of a table that are written at once


class SearchableBank(Protocol):
    """A `Bank` or a `LanceBank`."""

    @property
    def metric(self) -> str: ...

    def __len__(self) -> int: ...

    def search(
        self, queries: ArrayLike, k: int, exclude: ArrayLike | None = None, device: str = "cpu"
    ) -> tuple[np.ndarray, np.ndarray]: ...


def store(
    folder: Path, z: np.ndarray, ids: np.ndarray, kind: str, uri: str = "", version: int = 0, **options: Any
) -> SearchableBank:
    """Build the bank over vectors z (N, D) with row ids (N,), and save it in a folder, atomically.

    Args:
        kind: of a FAISS index, see `bank.build`; or `lance`, which takes `ivf_nlist` and `ivf_nprobe` of its options.
        uri: address of the Lance table; in the folder if empty.
        version: of a table that holds these rows; 0 writes one, or a new version of it.

    Raises:
        InputError: see `bank.build`; or that version holds other rows.
    """
    if kind != "lance":
        bank = build(z, ids, kind, **options)
        bank.save(folder)
        return bank
    from attnknn.index.lance_bank import LanceBank
    from attnknn.index.lance_table import Block

    with atomic_folder(folder) as draft:
        address, probes = uri or str(draft / _TABLE), options["ivf_nprobe"]
        if version:
            table = LanceBank.open(address, version, probes=probes)
            same, start = len(table) == len(z) and table.metric == options["metric"], 0
            for stored in table.blocks() if same else ():
                rows = slice(start, start + len(stored["id"]))
                same &= np.array_equal(stored["id"], ids[rows]) and np.array_equal(stored["vector"], z[rows])
                start = rows.stop
            require(same, f"{address}: version {version} holds other rows; build_index.version: 0 writes these")
        else:
            blocks = (slice(start, start + _BLOCK) for start in range(0, len(z), _BLOCK))
            rows = (Block(z[block], ids[block]) for block in blocks)
            table = LanceBank.build(
                address, rows, options["metric"], options["ivf_nlist"], overwrite=bool(uri), probes=probes
            )
        meta = {"kind": kind, "uri": uri, "uuid": table.uuid, "version": table.version, "probes": probes}
        write_json(draft / "bank.json", meta)
    return open_bank(folder)


def open_bank(folder: Path) -> SearchableBank:
    """Open the bank of `store`; vectors and index are memory-mapped, or those of the table's version.

    Raises:
        InputError: files are missing or damaged, or there is no such table or version.
    """
    meta = read_json(Path(folder) / "bank.json")
    if meta.get("kind") != "lance":
        return Bank.load(folder, mmap=True)
    from attnknn.index.lance_bank import LanceBank

    address = meta["uri"] or Path(folder).resolve() / _TABLE
    bank = LanceBank.open(address, meta["version"], probes=meta["probes"])
    require(bank.uuid == meta["uuid"], f"{address}: another table than that of {folder}; delete {folder}, run again")
    return bank

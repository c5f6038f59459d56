"""Erase rows of a Lance table, so that no file holds their vectors."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attnknn.core.duplicates import first_identical
from attnknn.core.errors import require
from attnknn.core.tables import file_system, to_array
from attnknn.index.lance_bank import LanceBank
from attnknn.index.lance_rows import has_id
from attnknn.index.lance_table import delete_files, files_of, one_line_errors, refuse_earlier_changes

_DISTINCT = 8  # values of a vector, whose bytes are then in a file only if the vector is
_CHUNK = 2**26  # bytes of a file that are searched at once


@one_line_errors
def erase(bank: LanceBank, ids: ArrayLike) -> LanceBank:
    """Bank without these rows and with no file that holds their vectors, or those of rows removed earlier.

    Other versions are deleted, unless they have a tag, and changes by others that began before are refused. Files are
    written anew, and read to see that the bytes of these vectors are in none; those of few different values are not
    looked for, since they occur by chance.

    Raises:
        InputError: a tag holds a row, there are branches, an id is not in the bank, or a file still holds a vector.
    """
    wanted = np.unique(np.asarray(ids, dtype=np.int64))
    vectors = bank.rows_of(wanted)["vector"]
    branches = ", ".join(bank.table.branches.list())
    require(not branches, f"{bank.table.uri}: branch {branches} needs its files; delete the branch first")
    table = bank.table.to_table(columns=["_rowaddr"], filter=has_id(wanted))
    fragments = set((to_array(table["_rowaddr"]) >> 32).tolist())
    for name, tag in bank.table.tags.list().items():
        kept = {fragment.fragment_id for fragment in bank.table.checkout_version(tag["version"]).get_fragments()}
        require(not kept & fragments, f"{bank.table.uri}: tag {name} holds a row to erase; delete the tag first")
    smaller = bank.remove(wanted) if len(wanted) else bank
    # Lists without the removed rows come first: a kill after compaction would leave lists that name what is nowhere.
    smaller = smaller.indexed()
    table = smaller.table.checkout_version(smaller.version)
    table.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
    table.create_scalar_index("id", "BTREE", replace=True)
    files = files_of(table)
    table = refuse_earlier_changes(table)
    table.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    # What is left is of a killed change, or of one that is now refused. A first inverted file would not be.
    kinds = ("data/", "_indices/") if smaller.n_lists else ("data/",)
    delete_files(table, [file for file in files if file.startswith(kinds)])
    result = replace(bank, table=table)
    for block in result.blocks(["vector"]):  # copies of a vector may stay
        present = block["vector"]
        vectors = vectors[first_identical(np.concatenate([present, vectors]))[len(present) :] >= len(present)]
    left = files_with(result.table, [v.tobytes() for v in vectors if len(np.unique(v)) >= _DISTINCT])
    require(not left, f"{bank.table.uri}: a vector to erase is still in {', '.join(left)}")
    return result


def files_with(table: Any, patterns: Sequence[bytes]) -> list[str]:
    """Files of a table, of all its versions, that hold one of the patterns."""
    if not patterns:
        return []
    overlap = max(map(len, patterns))
    system, root = file_system(table.uri)
    files = []
    for path in files_of(table):
        with system.open_input_file(f"{root}/{path}") as file:
            data = b""
            while block := file.read(_CHUNK):
                data = data[-overlap:] + block
                if any(pattern in data for pattern in patterns):
                    files.append(path)
                    break
    return files

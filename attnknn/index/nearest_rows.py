"""The nearest other rows of every row of a Lance table, by a search of whole lists."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from attnknn.core.tables import to_array
from attnknn.index.faiss_index import Index, nearest
from attnknn.index.lance_rows import INDEX, LanceRows
from attnknn.index.lance_table import list_reader
from attnknn.index.rerank import rerank

_SPARE = 8  # candidates beyond k, so that ties at the k-th place go to the lowest ids
_CACHE = 2**28  # bytes of lists that are kept


@dataclass
class NearestRows:
    """The k nearest other rows of every row, which is faster than `LanceBank.search`.

    Rows are numbered as in `LanceBank.blocks`. All must be in lists; see `LanceBank.indexed`. Approximate: a list is
    searched with those of the centroids nearest to its own.
    """

    bank: LanceRows
    k: int
    lists: int = 8  # that are searched for each list
    hidden: Sequence[int] | np.ndarray = ()  # ids of rows that are not returned as neighbours
    device: str = "cpu"  # `cuda…` searches on that GPU

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lance's ids of the rows, the row of each of these ids or −1, and whether a row is not hidden."""
        table = self.bank.table.to_table(columns=["id"], with_row_id=True, scan_in_order=True)
        row_ids = to_array(table["_rowid"])
        row_of = np.full(int(row_ids.max()) + 1, -1)
        row_of[row_ids] = np.arange(len(row_ids))
        return row_ids, row_of, ~np.isin(to_array(table["id"]), self.hidden)

    def search(self, part: int = 0, parts: int = 1) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Search for one of several parts of all lists.

        Yields:
            rows (M,) of a list, their neighbours (M, k), nearest first, padded by −1, and similarities (M, k), padded
            by −inf.
        """
        bank, k = self.bank, self.k
        row_ids, row_of, visible = self._rows
        neighbours, order = np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        if bank.n_lists:
            neighbours = nearest(bank.centroids, bank.centroids, min(self.lists, bank.n_lists), bank.metric)
            order = np.argsort(bank.groups, kind="stable")
            reader = list_reader(bank.table, INDEX)

        @lru_cache(max(self.lists, _CACHE * max(1, bank.n_lists) // (4 * bank.dimensions * len(row_ids))))
        def read(i: int) -> tuple[np.ndarray, np.ndarray]:
            if not bank.n_lists:
                return np.arange(len(row_ids)), np.concatenate([block["vector"] for block in bank.blocks(["vector"])])
            content = reader.read_partition(i, with_vector=not bank.codes)
            listed = to_array(content["_rowid"])  # also of rows removed later
            rows = np.where(listed < len(row_of), row_of[np.minimum(listed, len(row_of) - 1)], -1)
            kept = rows >= 0
            z = bank.take(rows[kept])["vector"] if bank.codes else to_array(content["flat"])[kept]
            return rows[kept], z

        for i in np.array_split(order, parts)[part]:
            rows, z = read(int(i))
            if not len(rows):
                continue
            others, keys = (np.concatenate(values) for values in zip(*map(read, neighbours[i].tolist()), strict=True))
            others, keys = others[visible[others]], keys[visible[others]]
            count = min(k + 1 + _SPARE, len(others))
            ids, sims = np.full((len(rows), k), -1), np.full((len(rows), k), -np.inf, dtype=np.float32)
            if count:
                search = Index("flat", bank.metric).searcher(keys, None, self.device)
                ranked = rerank(z, keys, others, search(z, count), rows[:, None], bank.metric)
                ids[:, :count], sims[:, :count] = (values[:, :k] for values in ranked)
            yield rows, ids, sims

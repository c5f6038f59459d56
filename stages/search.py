"""Find the k_max nearest bank rows of every row, itself excluded, once; all later stages slice them."""

from pathlib import Path

from attnknn.core.artifacts import Embeddings
from attnknn.core.device import use_device
from attnknn.index.bank import Bank
from attnknn.index.faiss_index import set_threads
from attnknn.neighbours.search import search
from stages.params import read_params, run


def main(dataset: str, embeddings: Path, bank: Path, out: Path) -> None:
    """Read EMBEDDINGS and BANK; write the neighbours to OUT."""
    p = read_params(dataset, "k_max", "device", "threads")
    device = use_device(p.device, p.threads)
    set_threads(p.threads)
    data = Embeddings.load(embeddings)
    search(Bank.load(bank, mmap=True), data, p.k_max, device).save(out)


if __name__ == "__main__":
    run(main)

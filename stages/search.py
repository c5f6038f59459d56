"""Find the k_max nearest bank rows of every row, itself excluded, once; all later stages slice them."""

from pathlib import Path

from attnknn.artifacts import Embeddings
from attnknn.bank import Bank
from attnknn.device import use_device
from attnknn.indexes import set_threads
from attnknn.memory import search
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

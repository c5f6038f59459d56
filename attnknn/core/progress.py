"""Progress bar of training, shown on a terminal after two seconds."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tqdm import tqdm

_SHOWN = ("loss", "val_accuracy", "val_psnr", "val_nll")


@contextmanager
def epoch_progress(name: str, total: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Yield a function that shows an epoch's metrics (epoch, loss and a validation score) in a progress bar."""
    with tqdm(total=total, desc=name, unit="epoch", delay=2, disable=None) as bar:

        def show(row: Mapping[str, float]) -> None:
            bar.n = int(row["epoch"])
            bar.set_postfix({name: f"{value:.4g}" for name, value in row.items() if name in _SHOWN})

        yield show

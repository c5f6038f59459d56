"""Progress bar of training."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tqdm import tqdm

_SHOWN = ("loss", "val_accuracy", "val_psnr", "val_nll")


@contextmanager
def epoch_progress(name: str, total: int, shown: bool | None = None) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Yield a function that shows an epoch's metrics (epoch, loss and a validation score) in a progress bar.

    Args:
        shown: None for a terminal only, after two seconds.
    """
    delay, disable = (2, None) if shown is None else (0, not shown)
    with tqdm(total=total, desc=name, unit="epoch", delay=delay, disable=disable) as bar:

        def show(row: Mapping[str, float]) -> None:
            bar.n = int(row["epoch"])
            bar.set_postfix({name: f"{value:.4g}" for name, value in row.items() if name in _SHOWN})

        yield show

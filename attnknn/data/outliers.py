"""Values so large that float32 cannot tell the others apart beside them."""

import numpy as np

DWARFS = 1e9


def dwarfing_value(X: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the value of X (N, D) that dwarfs the others, or None.

    A row deviates by the largest distance of its values from their columns' medians. The largest deviation dwarfs the
    others if it is over 1e9, and over 1e9 times their median, rows at the medians aside: centred and scaled, over half
    of the rows that differ would be nearly one point. Deviations below 1 count as 1, so that rounding noise around 0 is
    no measure for ordinary values. Any scale that all values share is accepted, and so are two halves of any scales.
    """
    with np.errstate(over="ignore"):
        if np.ptp(X) <= DWARFS:
            return None
        X = X.astype(np.float64, copy=False)
        deviations = np.abs(X - np.quantile(X, 0.5, axis=0, method="lower"))
        largest = deviations.max(1)
        usual = np.quantile(largest[largest > 0], 0.5, method="higher") if largest.any() else 0.0
        row = int(largest.argmax())
        dwarfs = largest[row] > DWARFS * max(usual, 1.0)
    return (row, int(deviations[row].argmax())) if dwarfs else None

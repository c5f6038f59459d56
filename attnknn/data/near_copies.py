"""Near-copies among images: test images whose nearest training image is far nearer than the others."""

import numpy as np

SIZE = 8  # of thumbnails
RATIO = 0.5  # of a near-copy's distance to that of the 50th nearest image
NEIGHBOURS = 50
_QUERIES = 10_000  # at most; every second, third, … test image beyond
_BLOCK = 250


def thumbnails(images: np.ndarray) -> np.ndarray:
    """Mean colours of 8 × 8 fields of uint8 images (N, C, H, W), centred and at unit length: float32 (N, C·64).

    So a change of brightness or contrast changes nothing. Smaller images keep their height or width.
    """
    fields = [np.arange(side) * min(SIZE, side) // side for side in images.shape[2:]]  # of each row and column
    means = [(f == np.arange(f[-1] + 1)[:, None]).astype(np.float32) for f in fields]
    down, across = (m / m.sum(1, keepdims=True) for m in means)
    blocks = (images[s : s + _BLOCK].astype(np.float32) for s in range(0, len(images), _BLOCK))
    x = np.concatenate([(down @ block @ across.T).reshape(len(block), -1) for block in blocks])
    x -= x.mean(1, keepdims=True)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)


def distance_ratios(queries: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Distance of each query's thumbnail to the nearest one of `images`, over that to the 50th nearest: (M,).

    Carlini et al. (2023, arXiv:2301.13188) find memorised images alike, dividing by the mean over the 50 nearest.
    """
    queries, keys = thumbnails(queries), thumbnails(images)
    last = min(NEIGHBOURS, len(keys)) - 1
    ratios = []
    for start in range(0, len(queries), _BLOCK):
        squared = 2 - 2 * queries[start : start + _BLOCK] @ keys.T
        nearest, farther = np.partition(squared, [0, last], axis=1)[:, [0, last]].clip(1e-6).T
        ratios.append(np.sqrt(nearest / farther))
    return np.concatenate(ratios)


def near_copies(test: np.ndarray, train: np.ndarray) -> dict[str, float]:
    """Share of test images with a near-copy in train, their `distance_ratios` below ½; and the median ratio.

    Where the median is not far above ½, as for digits on a plain ground, the images below it are mere lookalikes.
    """
    ratios = distance_ratios(test[:: -(-len(test) // _QUERIES)], train)
    return {"test_near_copies": float((ratios < RATIO).mean()), "nearest_ratio": float(np.median(ratios))}

"""CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST, read by torchvision's classes from their official archives."""

import gzip
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.errors import InputError, require
from attnknn.core.files import name_if_full


def official_files(name: str, md5: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    """(URL, file name, md5) of every file of a data set, from torchvision's constants.

    Args:
        name: CIFAR10, CIFAR100, MNIST or FashionMNIST.
        md5: checksums by file name that replace the official ones, for recompressed copies.

    Raises:
        InputError: `md5` names a file that the data set does not have.
    """
    kind, md5 = _torchvision_class(name), md5 or {}
    files: list[tuple[str, str, str]]
    if hasattr(kind, "resources"):
        files = [(kind.mirrors[0] + file, file, checksum) for file, checksum in kind.resources]
    else:
        files = [(kind.url, kind.filename, kind.tgz_md5)]
    names = [file for _, file, _ in files]
    for file in md5:
        require(file in names, f"md5: {file} is no file of {name}; its files are {', '.join(names)}")
    return [(url, file, md5.get(file, checksum)) for url, file, checksum in files]


def read_official(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], np.ndarray]:
    """Images uint8 (N, C, H, W), labels int64 (N,), class names, and the official test rows, bool (N,).

    The archives are unpacked here; torchvision verifies CIFAR's members by md5 before it unpickles them.

    Raises:
        InputError: a file in `folder` is missing or damaged.
    """
    kind = _torchvision_class(name)
    with tempfile.TemporaryDirectory() as root:
        for _, file, _ in official_files(name):
            _unpack(folder / file, Path(root), Path(root, name, "raw"))
        try:
            parts = [kind(root, train=train, download=False) for train in (True, False)]
        except (RuntimeError, ValueError, AssertionError, OSError) as error:
            raise InputError(f"{folder}: not the files of {name} ({error}); download them again") from None
    images = np.concatenate([np.asarray(part.data) for part in parts])
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    labels = np.concatenate([np.asarray(part.targets, np.int64) for part in parts])
    test = np.repeat([False, True], [len(part.data) for part in parts])
    return images, labels, tuple(parts[0].classes), test


def _torchvision_class(name: str) -> Any:
    from attnknn.core.torchvision_shim import torchvision

    return getattr(torchvision.datasets, name)


def _unpack(archive: Path, root: Path, raw: Path) -> None:
    """Unpack a tar into `root`, a single gzipped file into `raw`, where torchvision expects them."""
    try:
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive, "r:gz") as tar:
                # Python before 3.11.4 has no filters; the archive's checksum is verified.
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                tar.extractall(root)
        else:
            raw.mkdir(parents=True, exist_ok=True)
            with gzip.open(archive) as source, (raw / archive.stem).open("wb") as target:
                shutil.copyfileobj(source, target)
    except Exception as error:  # damaged headers and compressed data raise anything
        name_if_full(error, root)
        raise InputError(f"{archive}: missing, truncated or damaged ({error}); download it again") from None

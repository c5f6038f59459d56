"""Download the raw files of a source."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from attnknn.core.errors import InputError, require
from attnknn.core.files import atomic_folder, write_json
from attnknn.data.fetch import base_name, fetch
from attnknn.data.image_folder import ARCHIVES, pack_folder
from attnknn.data.torchvision_datasets import official_files

ARRAYS = ("x", "y", "test_x", "test_y")


def download(source: dict[str, Any], folder: Path, mirror: str = "") -> None:
    """Fetch the raw files of a source (see `data/config.py`) into `folder`, atomically.

    Args:
        mirror: a directory or base URL to search first; empty for none.

    Raises:
        InputError: a file is not available, or its checksum differs.
    """
    with atomic_folder(folder) as draft:
        if source["kind"] == "sklearn":
            _save_bundled(source["loader"], draft)
        elif source["kind"] == "torchvision":
            name = source["name"]
            for url, file, md5 in official_files(name, source.get("md5")):
                # Files of MNIST and Fashion-MNIST have the same names.
                fetch(url, draft / file, mirror, md5=md5, mirror_folder=name)
        elif source["kind"] == "image_folder":
            _save_image_folder(source["path"], draft, mirror, source.get("sha256", ""))
        elif source["kind"] == "arrays":
            for name in ARRAYS:
                if source.get(name):
                    fetch(source[name], draft / f"{name}.npy", mirror, sha256=source.get("sha256", {}).get(name, ""))
        else:
            for file in csv_files(source):
                fetch(file["path"], draft / base_name(file["path"]), mirror, sha256=file.get("sha256", ""))


def csv_files(source: dict[str, Any]) -> list[dict[str, str]]:
    """The `train` file of a csv source, and its `test` file if any; their names must differ."""
    files = [source["train"], *([source["test"]] if source.get("test") else [])]
    names = {base_name(file["path"]) for file in files}
    message = f"test.path: {files[-1]['path']} has the file name of train.path; rename one of the files"
    require(len(names) == len(files), message)
    return files


def _save_bundled(loader: str, folder: Path) -> None:
    """Write x.npy, y.npy and names.json of one of scikit-learn's bundled data sets."""
    from sklearn import datasets

    data = getattr(datasets, f"load_{loader}")()
    np.save(folder / "x.npy", data.images if "images" in data else data.data)
    np.save(folder / "y.npy", data.target)
    names = {"features": list(map(str, data.feature_names)), "classes": list(map(str, data.target_names))}
    write_json(folder / "names.json", names)


def _save_image_folder(path: str, folder: Path, mirror: str, sha256: str) -> None:
    """Fetch an archive, or pack a directory into one, because DVC tracks one file faster than 60,000."""
    local = Path(os.path.expanduser(path))  # Path.expanduser raises for an unknown ~user
    if local.is_dir():
        pack_folder(local, folder / f"{local.resolve().name}.tar")
    elif path.lower().endswith(ARCHIVES):
        fetch(path, folder / base_name(path), mirror, sha256=sha256)
    else:
        raise InputError(f"path: {path!r} is neither a directory nor an archive ({', '.join(ARCHIVES)}); correct it")

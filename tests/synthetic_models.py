"""Files to fit small models on."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_iris

from attnknn.core.artifacts import BANK, FIT, TEST, VAL, Split
from attnknn.encoder.encoder import Encoder

FAST = {"weights": "distance", "n_neighbors": 7}


def iris_csv(path: Path, rows: int = 150) -> pd.DataFrame:
    data = load_iris(as_frame=True)
    frame = data.frame.iloc[np.random.default_rng(0).permutation(150)[:rows]].reset_index(drop=True)
    frame["kind"] = np.where(frame["petal length (cm)"] > 3, "long", "short")
    frame["target"] = np.array(data.target_names)[frame["target"]]
    frame.loc[3, "kind"] = ""
    frame.to_csv(path, index=False)
    return frame


def picture_encoder() -> Encoder:
    encoder = Encoder("convnet", (1, 8, 8), 0, [4, 4, 4], embed_dim=3, depth=1)
    encoder.fit_normalisation(np.random.default_rng(0).integers(0, 255, (20, 1, 8, 8), dtype=np.uint8))
    return encoder.eval()


def picture_folders(folder: Path, per_class: int = 12) -> None:
    """Class `left` is bright on the left, `right` on the right."""
    rng = np.random.default_rng(1)
    for side, name in enumerate(("left", "right")):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = rng.integers(0, 60, (8, 8), dtype=np.uint8)
            pixels[:, 4 * side : 4 * side + 4] += 150
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def split_of_images() -> Split:
    rng = np.random.default_rng(0)
    part = np.repeat(np.array([BANK, FIT, VAL, TEST], np.int8), [60, 10, 10, 20])
    x = rng.integers(0, 255, (100, 1, 8, 8), dtype=np.uint8)
    return Split(x, rng.integers(0, 2, 100), part, ("no", "yes"))


def tar(path: Path, members: dict[str, bytes], *, links: dict[str, str] | None = None, mode: str = "w:xz") -> Path:
    """An archive of files, folders (names that end in a slash) and links."""
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


def save_npy(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def sign(folder: Path, **changes: Any) -> None:
    """Write the checksums of a changed model; `changes` are keys of its model.json."""
    meta = json.loads((folder / "model.json").read_text()) | changes
    for name in meta["sha256"]:
        meta["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    meta.pop("own_sha256")
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(meta | {"own_sha256": digest}))

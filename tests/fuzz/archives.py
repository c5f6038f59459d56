"""Archives of pictures, .zip and .tar: members outside, links, headers, sizes and bytes."""

import io
import tarfile
import warnings
import zipfile
from random import Random

from tests.fuzz.judge import Judge
from tests.fuzz.mutate import TEXTS, damage
from tests.fuzz.pictures import picture_bytes, png
from tests.fuzz.settings import Project

_NAMES = [
    "../x.png", "/tmp/x.png", "a/../../x.png", "a/b/c/x.png", "a\\x.png", "__MACOSX/a/x.png", "a", "a/", ".", "c/",
]  # fmt: skip
_LARGE = bytes(120_000_000)
_TYPES = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"z"]


def _members(rng: Random) -> list[tuple[str, bytes]]:
    top, parts = rng.choice(["", "", "wrap/"]), rng.choice([[""], [""], ["train/", "test/"]])
    members = [(f"{top}{part}{label}/{i}.png", png(rng)) for part in parts for label in "ab" for i in range(8)]
    for _ in range(rng.choice([0, 0, 1, 2])):
        name = rng.choice([*_NAMES, f"a/{rng.choice(TEXTS)[:300]}.png", members[0][0]]).replace("\0", "0")
        members.insert(rng.randrange(len(members)), (name, rng.choice([b"", picture_bytes(rng), _LARGE])))
    i = rng.randrange(len(members))
    members[i] = (members[i][0], picture_bytes(rng) if rng.random() < 0.3 else members[i][1])
    return members


def _zip(rng: Random) -> bytes:
    file, methods = io.BytesIO(), [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings(action="ignore"):  # of duplicate names
        for name, data in _members(rng):
            member = zipfile.ZipInfo(name)
            member.external_attr = rng.choice([0] * 30 + [0o120777 << 16, 0o020666 << 16])
            archive.writestr(member, data, zipfile.ZIP_DEFLATED if data is _LARGE else rng.choice(methods))
    data = bytearray(file.getvalue())
    if rng.random() < 0.2:  # encrypted, of another method, or of another size
        offset, value = rng.choice([(8, 1), (10, 99), (10, 12), (24, 255)])
        data[data.rfind(b"PK\1\2") + offset] = value
    return bytes(data)


def _tar(rng: Random, mode: str) -> bytes:
    file, header = io.BytesIO(), rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    with tarfile.open(fileobj=file, mode=mode, format=header) as archive:  # type: ignore[call-overload]
        for name, data in _members(rng):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if rng.random() < 0.02:
                member.type, member.size = rng.choice(_TYPES), 0
                member.linkname = rng.choice(["../../x", "a/0.png", "/etc/passwd"])
            if rng.random() < 0.02:
                member.pax_headers = {rng.choice(["size", "mtime", "path", "GNU.sparse.map", "x"]): rng.choice(TEXTS)}
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def run(rng: Random, judge: Judge) -> None:
    """Fetch an archive and split its pictures."""
    modes = {"zip": "", "tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}
    suffix, mode = rng.choice([*modes.items(), ("zip", ""), ("tar", "w")])
    data, path = _tar(rng, mode) if mode else _zip(rng), judge.folder / f"pets.{suffix}"
    path.write_bytes(damage(rng, data) if rng.random() < 0.3 else data)
    Project(judge, {"kind": "image_folder", "path": str(path)} | rng.choice([{}, {"size": 8}])).prepare()

"""One file from a mirror, a path or the web: checked before it takes its place."""

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from attnknn.core.errors import InputError
from attnknn.core.files import atomic_file

CHUNK = 1 << 20
MIRROR = "the mirror setting (`mirror`, or the environment variable ATTNKNN_MIRROR)"


class _Unavailable(Exception):
    """The file is not to be had at this place; the next one may have it."""


def base_name(location: str) -> str:
    """The file name that a path or an http(s) address ends in.

    Raises:
        InputError: the address has another scheme, or ends in no file name.
    """
    scheme, separator, _ = location.partition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise InputError(f"{location}: {scheme} addresses are not read; give a path or an http(s) address")
    path = urllib.parse.urlsplit(location).path if separator else location
    name = urllib.parse.unquote(path.rpartition("/")[2]) if separator else Path(path).name
    if name in ("", ".", "..") or "/" in name:
        raise InputError(f"{location!r}: ends in no file name; give the address or path of one file")
    return name


def fetch(
    location: str,
    out: Path,
    mirror: str = "",
    *,
    sha256: str = "",
    md5: str = "",
    mirror_folder: str = "",
    timeout: float = 30.0,
) -> None:
    """Copy the file at `location` to `out`; of an address, from the mirror if that has one of its name.

    A path of this machine that is there is read itself, whatever the mirror has.

    Args:
        location: an http(s) address or a path.
        out: where the file goes; it appears whole and checked, or not at all.
        mirror: a directory or an http(s) base address; empty for none.
        sha256: expected checksum in hexadecimal; empty for no check.
        md5: the same, for sources that publish no other.
        mirror_folder: folder of the mirror to look in before its root, for names that several sources share.
        timeout: seconds without a byte after which a server counts as absent.

    Raises:
        InputError: the file is nowhere, or not the one that was expected.
    """
    name = base_name(location)
    looked = []
    local = not _is_url(location) and Path(location).expanduser().is_file()
    for place in [*([] if local else _mirror_places(mirror, mirror_folder, name)), location]:
        try:
            with atomic_file(out) as draft:
                got = _copy(place, draft, timeout)
                for kind, expected in (("sha256", sha256.lower()), ("md5", md5.lower())):
                    if expected and got[kind] != expected:
                        raise InputError(
                            f"{place}: wrong {kind}: expected {expected}, got {got[kind]}; "
                            f"replace the file, or correct the {kind} of its source"
                        )
            return
        except _Unavailable as reason:
            looked.append(f"{place} ({reason})")
    path = "" if _is_url(location) else "correct the path, or "
    raise InputError(
        f"{name}: not found at {' or '.join(looked)}; {path}put {name} into a directory and name that in {MIRROR}"
    )


def _mirror_places(mirror: str, folder: str, name: str) -> list[str]:
    if not mirror:
        return []
    if _is_url(mirror):
        name = urllib.parse.quote(name)
    elif not Path(mirror).expanduser().is_dir():
        raise InputError(f"mirror: {mirror!r} is no directory and no http(s) address; correct {MIRROR}")
    root = mirror.rstrip("/")
    return [f"{root}/{folder}/{name}"] * bool(folder) + [f"{root}/{name}"]


def _is_url(location: str) -> bool:
    return location.lower().startswith(("http://", "https://"))


def _copy(place: str, draft: Path, timeout: float) -> dict[str, str]:
    """Write the bytes at `place` to `draft`, and return their checksums."""
    sums = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}
    name = draft.name[1:].removesuffix(".draft")
    with (
        _open(place, timeout) as (stream, total),
        draft.open("wb") as file,
        tqdm(
            desc=name,
            total=total,
            unit="B",
            unit_scale=True,
            delay=2,
            disable=None,
        ) as bar,
    ):
        size = 0
        while chunk := _read(stream):
            file.write(chunk)
            for checksum in sums.values():
                checksum.update(chunk)
            size += len(chunk)
            bar.update(len(chunk))
    if total is not None and size != total:
        raise _Unavailable(f"the connection ended after {size} of {total} bytes")
    return {kind: checksum.hexdigest() for kind, checksum in sums.items()}


@contextmanager
def _open(place: str, timeout: float) -> Iterator[tuple[BinaryIO | http.client.HTTPResponse, int | None]]:
    """Yield a byte stream and its length, where known."""
    if not _is_url(place):
        try:
            stream = Path(place).expanduser().open("rb")
        except OSError as error:
            raise _Unavailable(error.strerror or str(error)) from None
        with stream:
            yield stream, None
        return
    request = urllib.request.Request(place, headers={"User-Agent": "attnknn"})
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        raise _Unavailable(f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Unavailable(str(error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Unavailable(str(error) or type(error).__name__) from None
    with response:
        yield response, response.length


def _read(stream: BinaryIO | http.client.HTTPResponse) -> bytes:
    try:
        return stream.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _Unavailable(str(error) or type(error).__name__) from None

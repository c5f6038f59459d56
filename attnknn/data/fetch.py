"""Fetch one file from a mirror, a path or the web, verified by checksum and written atomically."""

import os
import shutil
import urllib.parse
from pathlib import Path

import pooch
from tqdm import tqdm

from attnknn.core.errors import InputError, is_disk_full
from attnknn.core.files import atomic_file

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # seconds without data
MIRROR = "the mirror setting (`mirror`, or the environment variable ATTNKNN_MIRROR)"


class _Unavailable(Exception):
    """A source does not have the file; the next one is tried."""


def base_name(location: str) -> str:
    """File name at the end of a path or an http(s) URL; InputError for another scheme, or without a file name."""
    scheme, separator, _ = location.partition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise InputError(f"{location}: {scheme} URLs are not supported; give a path or an http(s) URL")
    try:
        path = urllib.parse.urlsplit(location).path if separator else location
    except ValueError as error:
        raise InputError(f"{location}: no valid URL ({error}); correct it") from None
    name = urllib.parse.unquote(path.rpartition("/")[2]) if separator else Path(path).name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InputError(f"{location!r}: ends in no file name; give the URL or path of one file")
    return name


def fetch(
    location: str, out: Path, mirror: str = "", *, sha256: str = "", md5: str = "", mirror_folder: str = ""
) -> None:
    """Copy the file at `location` to `out`, atomically; a mirror takes precedence over a URL, not over a path.

    Args:
        location: an http(s) URL or a path.
        mirror: a directory or an http(s) base URL; empty for none.
        sha256, md5: expected checksums in hexadecimal; empty for no check.
        mirror_folder: folder of the mirror to search before its root, for file names that several sources share.

    Raises:
        InputError: no source has the file, or a checksum differs.
    """
    name = base_name(location)
    failures = []
    local = not _is_url(location) and os.path.isfile(os.path.expanduser(location))
    for source in [*([] if local else _mirror_sources(mirror, mirror_folder, name)), location]:
        try:
            with atomic_file(out) as draft:
                _copy(source, draft)
                for kind, expected in (("sha256", sha256.lower()), ("md5", md5.lower())):
                    if expected and (actual := pooch.file_hash(str(draft), alg=kind)) != expected:
                        remedy = f"replace the file, or correct the {kind} of its source"
                        raise InputError(f"{source}: wrong {kind}: expected {expected}, got {actual}; {remedy}")
            return
        except _Unavailable as reason:
            failures.append(f"{source} ({reason})")
    hint = "" if _is_url(location) else "correct the path, or "
    hint += f"put {name} into a directory and name that in {MIRROR}"
    raise InputError(f"{name}: not found at {' or '.join(failures)}; {hint}")


def _mirror_sources(mirror: str, folder: str, name: str) -> list[str]:
    if not mirror:
        return []
    if _is_url(mirror):
        name = urllib.parse.quote(name)
    elif not os.path.isdir(os.path.expanduser(mirror)):
        raise InputError(f"mirror: {mirror!r} is neither a directory nor an http(s) URL; correct {MIRROR}")
    root = mirror.rstrip("/")
    return [f"{root}/{folder}/{name}"] * bool(folder) + [f"{root}/{name}"]


def _is_url(location: str) -> bool:
    return location.lower().startswith(("http://", "https://"))


def _copy(source: str, draft: Path) -> None:
    """Copy or download a file to `draft`."""
    try:
        if not _is_url(source):
            shutil.copyfile(os.path.expanduser(source), draft)
            return
        # An archive with a Content-Encoding would be decompressed; ask for none.
        headers = {"User-Agent": "attnknn", "Accept-Encoding": "identity"}
        # pooch requires a bar that is true, which one without a total is not, and then sets its total.
        with tqdm(desc=base_name(source), total=1, unit="B", unit_scale=True, delay=2, disable=None) as bar:
            download = pooch.HTTPDownloader(bar, _CHUNK, timeout=_TIMEOUT, headers=headers)  # type: ignore[arg-type]
            download(source, str(draft), None)
    except (OSError, ValueError) as error:  # base classes of all errors of requests
        if is_disk_full(error):
            raise
        response = getattr(error, "response", None)
        reason = f"HTTP {response.status_code} {response.reason}" if response is not None else _cause(error)
        raise _Unavailable(reason) from None


def _cause(error: BaseException) -> str:
    """Message of the innermost of the nested errors of requests and urllib3."""
    inner = [value for value in (*error.args, getattr(error, "reason", None)) if isinstance(value, Exception)]
    if inner:
        return _cause(inner[-1])
    return getattr(error, "strerror", None) or str(error).rpartition(": ")[2]

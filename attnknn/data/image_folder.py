"""Images in class folders: pack them into one archive, and decode them from it without extracting it to disk.

An archive holds `train/<class>/…` and `test/<class>/…`, or only `<class>/…`, optionally inside one more folder. Hidden
files and `__MACOSX` are ignored.
"""

import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from tqdm import tqdm

from attnknn.core.errors import InputError, is_disk_full, require

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
# Formats that PIL decodes itself; some others run external programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
_WHOLE = 2**24  # bytes of a member that are read before its pixels are known
LAYOUT = "expected train/<class>/<image> and test/<class>/<image>, or <class>/<image>"


def pack_folder(folder: Path, out: Path) -> None:
    """Pack `folder` into a plain tar whose bytes depend on names and contents only.

    Raises:
        InputError: an entry is neither a file nor a folder, or cannot be read.
    """
    paths = []

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror or error}); correct or remove it")

    for top, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        circular = any(Path(top).resolve() == parent.resolve() for parent in Path(top).parents)
        require(not circular, f"{top}: a link to a folder above it; remove it")
        folders[:] = [name for name in folders if not _ignored(PurePosixPath(name))]
        paths += [Path(top, name) for name in (*folders, *files) if not _ignored(PurePosixPath(name))]
    with tarfile.open(out, "w") as tar:
        for path in tqdm(sorted(paths), desc=f"packing {folder.name}", unit="file", delay=2, disable=None):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            try:
                if path.is_dir():
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
                    continue
                require(path.is_file(), f"{path}: neither a file nor a folder; remove it")
                with path.open("rb") as file:
                    member.size = os.fstat(file.fileno()).st_size
                    tar.addfile(member, file)
            except OSError as error:
                if is_disk_full(error):
                    raise
                error.filename = str(path)
                refuse(error)


@dataclass(frozen=True)
class Listing:
    """The images of an archive: training rows, then test rows, sorted by class and name."""

    names: tuple[str, ...]  # the N member names
    y: np.ndarray  # int64 (N,), positions in `classes`
    classes: tuple[str, ...]  # the class folders, sorted
    test: np.ndarray | None  # bool (N,), the rows under test/; None without that folder


def list_images(archive: Path) -> Listing:
    """List image names and labels of an archive, without decoding images.

    Raises:
        InputError: the archive is damaged or has another layout, one class, an empty class, or an unsafe member.
    """
    files, folders = set(), set()
    with _readable(archive):
        for path, read in _members(archive):
            (folders if read is None else files).add(path)
    require(bool(files), f"{archive.name}: holds no files; {LAYOUT}")
    skip = int(len({path.parts[0] for path in files}) == 1 and min(len(path.parts) for path in files) > 2)
    tops = {path.parts[skip] for path in files if len(path.parts) > skip + 1}
    official = tops == {"train", "test"}
    depth = skip + (3 if official else 2)
    for path in sorted(files):
        require(len(path.parts) == depth, f"{archive.name}: {path} is out of place; {LAYOUT}")
    for path in sorted(folders - {path.parent for path in files}):
        empty = len(path.parts) == depth - 1 and path.parts[:skip] == min(files).parts[:skip]
        require(not empty, f"{archive.name}: class folder {path} is empty; put images into it, or remove it")
    ordered = sorted(files, key=lambda path: (official and path.parts[skip] == "test", path.parts))
    labels = np.array([path.parts[-2] for path in ordered])
    test = np.array([path.parts[skip] == "test" for path in ordered]) if official else None
    classes, y = np.unique(labels, return_inverse=True)
    require(len(classes) > 1, f"{archive.name}: one class, {classes[0]}; give at least two class folders")
    for name in [] if test is None else np.setdiff1d(labels[test], labels[~test]):
        raise InputError(f"{archive.name}: test/{name} has images and train/{name} has none; add training images")
    return Listing(tuple(map(str, ordered)), y.astype(np.int64), tuple(map(str, classes)), test)


def read_images(archive: Path, names: tuple[str, ...], size: int = 0) -> np.ndarray:
    """Decode members of an archive: uint8 (N, C, H, W), C = 1 if all are grey, else 3 (RGB).

    Args:
        names: members, in the order of the rows.
        size: height and width to resize to (bilinear, antialiased); 0 keeps them.

    Raises:
        InputError: the archive is damaged, a member is no image, or sizes differ and `size` is 0.
    """
    rows = {name: row for row, name in enumerate(names)}
    images: Any = None
    first = ""
    bar = tqdm(desc=f"decoding {archive.name}", total=len(names), delay=2, disable=None)
    with _readable(archive), bar:
        for path, read in _members(archive):
            name = str(path)
            if read is None or name not in rows:
                continue
            with read() as file:
                data = file.read(_WHOLE + 1)  # to the end, where zip compares checksums; larger members as needed
                member = data if len(data) <= _WHOLE or file.seek(0) else file
                pixels = decode(member, f"{archive.name}: {name}", (size, size) if size else None)  # (C, H, W)
            if images is None:
                images, first = np.zeros((len(names), *pixels.shape), np.uint8), name
            if pixels.shape[1:] != images.shape[2:]:
                (_, h, w), (_, _, h0, w0) = pixels.shape, images.shape
                sizes = f"{archive.name}: {name} is {w}×{h} and {first} is {w0}×{h0}"
                raise InputError(f"{sizes}; give the source a size to resize all images to, such as `size: 32`")
            if len(pixels) > images.shape[1]:
                images = images.repeat(3, axis=1)
            images[rows[name]] = pixels  # a grey image fills all three channels
            bar.update()
    require(images is not None, f"{archive.name}: holds none of the {len(names)} listed images; run `dvc repro`")
    return images


def decode(
    file: bytes | IO[bytes],
    where: str,
    size: tuple[int, int] | None = None,
    most: int = 0,
    least: int = 0,
    grey: bool = False,
) -> np.ndarray:
    """Decode an image: uint8 (1, H, W) if grey, else (3, H, W); upright by EXIF; the first of several frames.

    Args:
        file: its bytes, or an open file, which is read no further than decoding needs.
        where: its name in errors.
        size: height and width to resize to (bilinear, antialiased); None keeps them.
        most, least: maximum and minimum number of pixels, checked before decoding; 0 takes PIL's maximum.

    Raises:
        InputError: no readable image, or one too large or too small.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(file) if isinstance(file, bytes) else file, formats=FORMATS)
            shape, n = f"{where}: {image.width}×{image.height} pixels", image.width * image.height
            too_large = f"{shape}; at most {most / 1e6:g} million are taken, so make the image smaller"
            require(not most or n <= most, too_large)
            require(n >= least, f"{shape}: too few; give an image of {least} or more")
            require(image.mode[0] not in "IF", f"{where}: {image.mode} pixels; convert the images to 8 bits a channel")
            image.load()
            with suppress(Exception):  # damaged EXIF does not damage the image
                ImageOps.exif_transpose(image, in_place=True)
            image = image.convert("L" if grey or image.mode in ("1", "L", "LA") else "RGB")
            if size:
                image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    except InputError:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        limit = f"{(most or Image.MAX_IMAGE_PIXELS or 0) / 1e6:.0f} million pixels"
        raise InputError(f"{where}: refused as too large; at most {limit} are taken, so make it smaller") from None
    except Exception as error:  # a decoder may raise anything on damaged bytes
        reason = "" if isinstance(error, Image.UnidentifiedImageError) else f" ({error})"
        raise InputError(f"{where}: no readable image{reason}; replace or remove it") from None
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@contextmanager
def open_picture(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; raise InputError if it cannot be read."""
    try:
        file = path.open("rb")
    except ValueError:
        raise InputError("a path contains a NUL character; correct it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct the path") from None
    with file:
        yield file


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Convert errors of a damaged archive, which any read may raise, to an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # damaged headers and compressed data raise anything
        message = f"{archive.name}: damaged archive ({error}); get the file again, and give the source its sha256"
        raise InputError(message) from None


def _ignored(path: PurePosixPath) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, Callable[[], IO[bytes]] | None]]:
    """Yield (path, reader) of every file and (path, None) of every folder, in the order of the archive."""
    for name, kind, read in _zip_members(archive) if archive.suffix.lower() == ".zip" else _tar_members(archive):
        path = PurePosixPath(name)
        inside = not path.is_absolute() and ".." not in path.parts
        require(inside, f"{archive.name}: member {name} points outside it; refused, pack it again")
        require(kind != "other", f"{archive.name}: member {name} is neither file nor folder; refused, pack the file")
        if path.parts and not _ignored(path):
            yield path, read if kind == "file" else None


def _tar_members(archive: Path) -> Iterator[tuple[str, str, Callable[[], IO[bytes]]]]:
    kinds = {tarfile.DIRTYPE: "folder", tarfile.LNKTYPE: "file"}  # tarfile resolves hard links
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if member.size < 0:
                raise tarfile.ReadError(f"{member.name} has a size below 0")
            kind = "file" if member.isreg() else kinds.get(member.type, "other")
            yield member.name, kind, lambda member=member: tar.extractfile(member)  # type: ignore[misc]
        # tarfile stops at a cut or a damaged header as at the end: two blocks of zeros, with zeros alone beyond.
        file: Any = tar.fileobj
        file.seek(tar.offset)
        size = 0
        with suppress(EOFError):  # Python reads zeros after an xz stream as a further, cut one
            while block := file.read(1024):
                if block.strip(b"\0"):
                    raise tarfile.ReadError(f"no member header at byte {tar.offset}")
                size += len(block)
        if size < 1024:
            raise tarfile.ReadError("unexpected end of data")


def _zip_members(archive: Path) -> Iterator[tuple[str, str, Callable[[], IO[bytes]]]]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            mode = stat.S_IFMT(member.external_attr >> 16)
            kind = "folder" if member.is_dir() else "file" if mode in (0, stat.S_IFREG) else "other"
            yield member.filename, kind, lambda member=member: file.open(member)

"""Pictures: modes, formats, sizes, EXIF, frames, claimed sizes and bytes; and folders of them."""

import io
import zlib
from contextlib import suppress
from random import Random
from typing import Any

from PIL import Image

from tests.fuzz.judge import Judge
from tests.fuzz.mutate import damage

_FORMATS = ("PNG", "PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO")
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16", "F", "HSV")


def png(rng: Random) -> bytes:
    """A picture as the model reads them."""
    file = io.BytesIO()
    Image.frombytes("L", (8, 8), rng.randbytes(64)).save(file, "PNG")
    return file.getvalue()


def picture_bytes(rng: Random) -> bytes:
    """A picture of any kind, more or less broken."""
    if rng.random() < 0.2:
        return _claiming(rng)
    size = rng.choice([(8, 8)] * 6 + [(1, 1), (2, 3), (40, 8), (1, 300), (700, 500)])
    image, kind, exif = Image.new(rng.choice(_MODES), size), rng.choice(_FORMATS), Image.Exif()
    exif[0x0112] = rng.choice([1, 3, 6, 8, 99])
    options: dict[str, Any] = rng.choice([{}, {}, {"exif": exif.tobytes()}, {"exif": damage(rng, exif.tobytes())}])
    if kind in ("GIF", "TIFF", "WEBP") and rng.random() < 0.3:
        options = {"save_all": True, "append_images": [image] * 3}
    file = io.BytesIO()
    with suppress(Exception):  # a format without this mode, or EXIF that cannot be written
        image.save(file, kind, **options)
    return damage(rng, file.getvalue() or png(rng)) if rng.random() < 0.4 else file.getvalue()


def _claiming(rng: Random) -> bytes:
    """A PNG whose header claims any size, before few or many zeros."""
    width, height = (rng.choice([0, 1, 8, 4000, 20_000, 2**31 - 1, 2**32 - 1]).to_bytes(4) for _ in range(2))
    header = b"IHDR" + width + height + rng.choice([b"\1\0", b"\x08\0", b"\x08\6"]) + b"\0\0\0"
    chunks = [header, b"IDAT" + zlib.compress(bytes(rng.choice([0, 99, 20_000_000]))), b"IEND"]
    framed = [(len(c) - 4).to_bytes(4) + c + zlib.crc32(c).to_bytes(4) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def run(rng: Random, judge: Judge) -> None:
    """Give pictures to a command."""
    action, folder = rng.choice(["fit", "predict", "predict", "predict", "explain", "add"]), judge.folder / "in"
    folder.mkdir()
    if action == "fit":
        for name in rng.choice([["a", "b"], ["a", "b", "c"], ["a"], ["train/a", "train/b", "test/a"]]):
            (folder / name).mkdir(parents=True)
            for i in range(rng.choice([0, 1, 5, 5, 5])):
                (folder / name / f"{i}.png").write_bytes(png(rng) if rng.random() < 0.9 else picture_bytes(rng))
        model, encoder = judge.out / "m", judge.models / "pictures" / "model" / "input" / "encoder"
        words = ("--encoder", encoder, "-o", model, "-k", 5, "--weights", "distance")
        return judge.change(model, "fit", folder, *words)
    for i in range(rng.choice([1, 1, 3])):
        suffix = rng.choice([".png", ".png", ".jpg", ".gif", ".tif", ".webp", ".bmp", ".PNG"])
        (folder / f"{rng.choice(['a', 'ü', 'a b', '[a]'])}{i}{suffix}").write_bytes(picture_bytes(rng))
    sources, model = rng.choice([[folder], [*folder.iterdir()], [folder / "none.png", folder]]), judge.model("pictures")
    if action == "add":
        return judge.change(model, "add", model, *sources, "--label", "left")
    flags = rng.choice([["--probabilities"], ["--probabilities", "--keep-going"]]) if action == "predict" else []
    piped = rng.random() < 0.2
    stdin, words = "\n".join(map(str, sources)).encode() if piped else b"", ["-"] if piped else sources
    judge.answers(judge.command(action, model, *words, "--json", *flags, stdin=stdin))

"""Embed pictures by an encoder of the pipeline, a model of torchvision, or an ONNX file."""

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from attnknn.app.model.inputs import Batch, Pictures
from attnknn.core.errors import InputError, needs_extra, require
from attnknn.data.image_folder import decode, open_picture
from attnknn.encoder.encoder import IMAGENET_MEAN, IMAGENET_STD, Encoder

BATCH = 64  # pictures embedded at once
_SIDE = 224  # of pictures for an ONNX file that leaves it open


class Embedder(NamedTuple):
    """A model from files of pictures to vectors."""

    files: tuple[Path, ...]  # that determine the vectors
    read: Callable[[Path], np.ndarray]  # one picture (C, H, W)
    embed: Callable[[np.ndarray], np.ndarray]  # (B, C, H, W) → float32 (B, D)

    def __call__(self, paths: Sequence[Path]) -> np.ndarray:
        """Vectors float32 (N, D)."""
        starts = range(0, len(paths), BATCH)
        return np.concatenate([self.embed(np.stack([*map(self.read, paths[s : s + BATCH])])) for s in starts])


def open_embedder(encoder: str, weights: Path | None = None) -> Embedder:
    """Open the folder of an encoder, `torchvision:NAME` with a file of weights, or `onnx:FILE`.

    Of a model of torchvision the last layer's input is taken, for pictures prepared as for these weights. An ONNX file
    gets pictures scaled and cropped to its input's size, in RGB normalised as ImageNet's.

    Raises:
        InputError: a file is missing, damaged, or of another kind of model.
    """
    kind, _, name = encoder.partition(":")
    if kind == "torchvision":
        require(weights is not None, f"--weights: none given; name the file of {name}'s weights")
        return _torchvision(name, Path(str(weights)))
    require(weights is None, f"--weights {weights}: for torchvision:NAME; leave it out")
    if kind == "onnx":
        return _onnx(Path(name))
    folder = Path(encoder)
    files = (folder / "weights.safetensors", folder / "config.json")
    kinds = "a folder with weights.safetensors and config.json, torchvision:NAME or onnx:FILE"
    require(files[0].is_file(), f"{encoder}: no encoder; give {kinds}")
    model, config = Encoder.load(folder)
    require(len(model.config["shape"]) == 3, f"{folder}: an encoder of tables; give one of images")
    pictures = Pictures(model, bool(config.get("bf16", False)))
    return Embedder(files, pictures.read, lambda images: pictures.vectors(Batch([], images)))


def _short(error: Exception) -> str:
    return shorten(str(error), 100, placeholder=" …")


def _read(path: Path) -> Image.Image:
    with open_picture(path) as file:
        pixels = decode(file, str(path))
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).convert("RGB")


def _torchvision(name: str, path: Path) -> Embedder:
    with needs_extra("pipeline", f"torchvision:{name}"):
        from attnknn.core.torchvision_shim import torchvision

    models = torchvision.models
    names = models.list_models(module=models)
    similar = ", ".join(get_close_matches(name, names) or ["resnet50", "convnext_tiny", "vit_b_16"])
    require(name in names, f"torchvision:{name}: no such model; there are {similar} and others")
    require(path.is_file(), f"--weights: {path}: no such file; correct the path")
    kinds = models.get_model_weights(name)
    try:
        state: Any = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
        with torch.device("meta"):
            modules = models.get_model(name, weights=None).named_modules()
        layer = next(reversed([key for key, module in modules if isinstance(module, nn.Linear)]), "")
        require(bool(layer), "it has no linear layer to leave out")
        state = state.get("state_dict", state)
        require(f"{layer}.weight" in state, f"it lacks {layer}.weight")
        options = {"num_classes": len(state[f"{layer}.weight"])}
        if "encoder.pos_embedding" in state:  # of a vision transformer: a class token and the patches of one size
            patches = state["encoder.pos_embedding"].shape[1] - 1
            options["image_size"] = state["conv_proj.weight"].shape[-1] * math.isqrt(patches)
        model = models.get_model(name, weights=None, **options)
        model.load_state_dict(state)
        model.set_submodule(layer, nn.Identity())
    except Exception as error:  # unpickling raises anything
        needed = f"no weights of torchvision's {name} ({_short(error)}); give its state dict, as torch.save writes it"
        raise InputError(f"--weights: {path}: {needed}") from None
    crop = [options["image_size"]] if "image_size" in options else []
    default = next((kind for kind in kinds if kind.transforms().crop_size == crop), kinds.DEFAULT)  # type: ignore[attr-defined]
    prepare = next((kind for kind in kinds if Path(kind.url).stem == path.stem), default).transforms()  # type: ignore[attr-defined]
    if crop and prepare.crop_size != crop:
        prepare.crop_size = prepare.resize_size = crop
    return Embedder((path,), lambda picture: prepare(_read(picture)).numpy(), partial(_forward, model.eval()))


@torch.inference_mode()
def _forward(model: nn.Module, images: np.ndarray) -> np.ndarray:
    return model(torch.from_numpy(images)).flatten(1).float().numpy()


def _onnx(path: Path) -> Embedder:
    require(path.is_file(), f"onnx:{path}: no such file; correct the path")
    with needs_extra("onnx", f"onnx:{path}"):
        import onnxruntime
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds, by version
        raise InputError(f"onnx:{path}: no ONNX model ({_short(error)}); export it again") from None
    source = session.get_inputs()[0]
    expected = "expected float pictures (batch, 3, height, width) and one vector for each"
    fits = len(source.shape) == 4 and source.shape[1] == 3
    require(fits, f"onnx:{path}: input {source.name} {source.shape}; {expected}")
    height, width = (side if isinstance(side, int) else _SIDE for side in source.shape[2:])
    mean, std = (np.array(value, np.float32)[:, None, None] for value in (IMAGENET_MEAN, IMAGENET_STD))

    def read(picture: Path) -> np.ndarray:
        image = _read(picture)
        scale = max(height / image.height, width / image.width)
        size = max(width, round(scale * image.width)), max(height, round(scale * image.height))
        left, top = (size[0] - width) // 2, (size[1] - height) // 2
        image = image.resize(size, Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))
        return (np.asarray(image, np.float32).transpose(2, 0, 1) / 255 - mean) / std

    def embed(images: np.ndarray) -> np.ndarray:
        rows = [images] if source.shape[0] != 1 else images[:, None]  # exported for one picture at a time
        try:
            outputs = [np.asarray(session.run(None, {source.name: row})[0]) for row in rows]
        except Exception as error:
            raise InputError(f"onnx:{path}: fails on pictures ({_short(error)}); {expected}") from None
        z = np.concatenate(outputs)
        fits = len(z) == len(images) and z.size == len(z) * z.shape[1]
        require(fits, f"onnx:{path}: output of shape {z.shape}; {expected}: export it with pooling")
        return z.reshape(len(z), -1).astype(np.float32)

    return Embedder((path,), read, embed)

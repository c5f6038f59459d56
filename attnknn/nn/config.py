"""Settings of augmentation."""

from typing import Annotated

from pydantic import Field

from attnknn.core.config import Block, Rate, Whole


class Augment(Block):
    crop: Whole = 0  # pixels of padding before a random crop
    flip: bool = False  # horizontal, in every other epoch
    jitter: Rate = 0.0  # strength of brightness, contrast and saturation jitter
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0  # degrees
    cutout: Whole = 0  # side of the Cutout square in pixels
    resized_crop: Rate = 0.0  # minimum share of the area of a random crop, resized to the image's size
    grey: Rate = 0.0  # probability of greyscale

"""Settings of augmentation."""

from typing import Annotated

from pydantic import Field

from attnknn.core.config import Block, Rate, Whole


class Augment(Block):
    crop: Whole = 0  # pixels of padding before a random crop
    flip: bool = False  # every other epoch
    jitter: Rate = 0.0  # brightness, contrast and saturation, as a share
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0  # degrees
    cutout: Whole = 0  # side in pixels of a square that is painted over

"""Base class and value types of the settings in config.py files: strict, no unknown keys, no NaN."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]  # seeds derived from it must stay below 2⁶³
Resamples = Annotated[int, Field(ge=100)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]


class Block(BaseModel):
    """A block of settings with defaults."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


def no_duplicates(**lists: list) -> None:
    """Raise ValueError if a list has a duplicate."""
    for key, values in lists.items():
        if len(set(values)) < len(values):
            raise ValueError(f"{key}: {values} names one twice")

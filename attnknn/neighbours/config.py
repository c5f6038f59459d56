"""Settings of neighbour statistics."""

from typing import Annotated

from pydantic import Field, model_validator

from attnknn.core.config import Block, Count, no_duplicates


class Statistics(Block):
    """Leave-one-out label agreement and density of each bank row."""

    sizes: Annotated[list[Count], Field(min_length=1)] = [5, 20, 64]  # neighbourhood sizes; at most k_max

    @model_validator(mode="after")
    def _distinct(self) -> "Statistics":
        no_duplicates(sizes=self.sizes)
        return self

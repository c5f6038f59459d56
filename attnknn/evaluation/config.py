"""Settings of evaluation."""

from typing import Annotated

from pydantic import Field

from attnknn.core.config import Block, Resamples, Share


class Evaluate(Block):
    bins: Annotated[int, Field(ge=2)] = 15
    resamples: Resamples = 2000  # bootstrap
    confidence: Share = 0.95


class Selective(Block):
    # target share of errors among the rows that abstention accepts
    risks: Annotated[list[Share], Field(min_length=1)] = [0.01, 0.05]
    # target miscoverage of conformal sets
    alphas: Annotated[list[Share], Field(min_length=1)] = [0.05, 0.1]

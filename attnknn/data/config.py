"""Settings of sources and of the split."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from attnknn.core.config import Block, Share, Whole


class Prepare(Block):
    test: Share = 0.2  # of all rows, where the source has no official test set
    val: Share = 0.1  # of the training rows: tunes baselines, stops training
    fit: Share = 0.1  # of the training rows: fits the head and calibration; the rest is the bank
    subset: Whole = 0  # at most this many rows in all, stratified; 0 takes every row
    numeric: Literal["standard", "quantile"] = "standard"  # scaling of a table's numbers; quantile is rank to normal

    @model_validator(mode="after")
    def _leave_a_bank(self) -> "Prepare":
        if self.fit + self.val >= 1:
            raise ValueError(f"fit {self.fit} + val {self.val} leave no rows for the bank; their sum must be below 1")
        return self


class Sklearn(Block):
    kind: Literal["sklearn"]
    loader: Literal["digits", "iris", "wine", "breast_cancer"]


class Torchvision(Block):
    kind: Literal["torchvision"]
    name: Literal["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]
    md5: dict[str, str] = {}


class ImageFolder(Block):
    kind: Literal["image_folder"]
    path: str
    sha256: str = ""
    size: Whole = 0


class CsvFile(Block):
    path: str
    sha256: str = ""


class Rule(Block):
    threshold: float | None = None
    map: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> "Rule":
        if (self.threshold is None) == (self.map is None):
            raise ValueError("give either threshold or map")
        return self


class Csv(Block):
    kind: Literal["csv"]
    train: CsvFile
    test: CsvFile | None = None
    target: str
    rule: Rule | None = None
    columns: list[str] | None = None
    separator: Annotated[str, Field(min_length=1)] = ","
    comment: Annotated[str, Field(max_length=1)] = ""  # lines that start so
    missing: list[str] = []
    target_strip: str = ""
    drop: list[str] = []
    groups: str = ""  # column whose equal values stay in one part, such as an id of patients; it is no feature
    numeric: list[str] = []
    categories: list[str] = []


class Arrays(Block):
    """Embeddings of one's own: .npy files of float rows, kept as they are, and of labels."""

    kind: Literal["arrays"]
    x: str
    y: str
    test_x: str | None = None
    test_y: str | None = None
    sha256: dict[Literal["x", "y", "test_x", "test_y"], str] = {}

    @model_validator(mode="after")
    def _test_rows_and_labels(self) -> "Arrays":
        if (self.test_x is None) != (self.test_y is None):
            raise ValueError("give both test_x and test_y, or neither")
        return self


Source = Annotated[Sklearn | Torchvision | ImageFolder | Csv | Arrays, Field(discriminator="kind")]

"""What the report says of one experiment: a sentence, pictures and tables a dataset, in one shape for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of texts; numbers are written with `tables.fixed`.

    Attributes:
        name: of the files it is written to, unique in its section; letters, digits and underscores.
        caption: what it holds, in a line.
        head, rows: texts; all rows are as long as the head.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Part:
    """What an experiment found on one dataset.

    Attributes:
        sentence: the finding, computed from the numbers below it; it can say that nothing was found.
        pictures: (text for who cannot see it, PNG).
        tables: to unfold.
    """

    dataset: str
    sentence: str
    pictures: Sequence[tuple[str, bytes]] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Section:
    """One experiment.

    Attributes:
        name: of the stage, and the anchor on the page.
        title: in a few words.
        question: what is asked and how it was done, in one to three sentences.
        parts: one a dataset, in the order of the datasets.
        note: how to read it, and what it does not say.
        command: that repeats it.
    """

    name: str
    title: str
    question: str
    parts: Sequence[Part]
    note: str = ""
    command: str = ""

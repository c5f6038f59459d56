"""Sections, parts and tables of the report; a table is rendered as HTML, Markdown, CSV and LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A number as text.

    Attributes:
        value: as text.
        around: an interval, a standard deviation or a p value, or empty.
        best: whether no other value in the comparison is better.
        method: the method that the cell names, or empty; the page adds its colour.
    """

    value: str
    around: str = ""
    best: bool = False
    method: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.around})" if self.around else self.value


Row = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """A table of texts; numbers are written with `tables.fixed`.

    Attributes:
        name: file name of the table, unique in its section; letters, digits and underscores.
        caption: one line.
        head, rows: all rows are as long as the head; a row of one cell alone is the heading of a group of rows.
        note: how to read it.
        folded: whether the page shows the caption only until the reader opens it.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    folded: bool = True


@dataclass(frozen=True)
class Part:
    """The results of an experiment on one dataset.

    Attributes:
        pictures: (alternative text, PNG).
        verdict: yes, no or undecided, where the experiment answers a claim; else empty.
    """

    dataset: str
    pictures: Sequence[tuple[str, bytes]] = ()
    tables: Sequence[Table] = ()
    verdict: str = ""


@dataclass(frozen=True)
class Section:
    """One experiment.

    Attributes:
        name: of the stage, and the anchor on the page.
        question: the question and the method, in one to three sentences.
        parts: one per dataset, in the order of the datasets.
        note: how to read it, and its limits.
        command: repeats the experiment.
    """

    name: str
    title: str
    question: str
    parts: Sequence[Part]
    note: str = ""
    command: str = ""


def _flat(table: Table) -> tuple[list[str], list[list[str]]]:
    """Head and rows, with group headings moved into a first column."""
    if all(len(row) == len(table.head) for row in table.rows):
        return list(table.head), [[str(cell) for cell in row] for row in table.rows]
    rows, group = [], ""
    for row in table.rows:
        if len(row) == 1:
            group = str(row[0])
        else:
            rows.append([group, *map(str, row)])
    return ["group", *table.head], rows


def as_frame(table: Table) -> pd.DataFrame:
    """The table's texts, group headings as a first column `group`."""
    head, rows = _flat(table)
    return pd.DataFrame(rows, columns=pd.Index(head))


def as_markdown(table: Table) -> str:
    """The table in Markdown: best values are bold; a group's heading stands in its first row."""
    head, lines = _flat(table)
    rows, previous = [], None
    cells = iter([row for row in table.rows if len(row) > 1])
    for line in lines:
        shown = [f"**{c.value}** ({c.around})" if isinstance(c, Cell) and c.best else str(c) for c in next(cells)]
        if len(line) > len(shown):
            shown = [line[0] if line[0] != previous else "", *shown]
            previous = line[0]
        rows.append(shown)
    safe = [[text.replace("|", "\\|") for text in row] for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe) + "\n"


def as_tex(table: Table) -> str:
    """The table in LaTeX, with its caption. Needs \\usepackage{booktabs}."""
    return as_frame(table).to_latex(index=False, escape=True, caption=table.caption, label=f"tab:{table.name}")

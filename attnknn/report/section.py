"""What the report says of one experiment: a sentence, pictures and tables a dataset, in one shape for all of them.

A table is written once and shown four ways: on the page, as Markdown, as CSV and as LaTeX.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A number for people.

    Attributes:
        value: as text.
        around: what lies around it: an interval, a deviation, a p value; or nothing.
        best: whether no other's is better.
        method: whose cell it is, where it names a method: the page gives it the method's colour.
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
        name: of the files it is written to, unique in its section; letters, digits and underscores.
        caption: what it holds, in a line.
        head, rows: all rows are as long as the head; a row of one cell alone is a heading of those below it.
        note: how to read it.
        folded: whether the page hides it until it is asked for.
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    folded: bool = True


@dataclass(frozen=True)
class Part:
    """What an experiment found on one dataset.

    Attributes:
        sentence: the finding, computed from the numbers below it; it can say that nothing was found. Several findings
            are a line each.
        pictures: (text for who cannot see it, PNG).
        tables: all that the sentence and the pictures rest on.
        verdict: yes, no or undecided, where the sentence is a claim's answer.
    """

    dataset: str
    sentence: str
    pictures: Sequence[tuple[str, bytes]] = ()
    tables: Sequence[Table] = ()
    verdict: str = ""


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


def _flat(table: Table) -> tuple[list[str], list[list[str]]]:
    """Head and rows with headings put into a first column, where there are any."""
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
    """The table's texts, headings as a first column `group`."""
    head, rows = _flat(table)
    return pd.DataFrame(rows, columns=pd.Index(head))


def as_markdown(table: Table) -> str:
    """The table in Markdown; what is best is bold, headings stand in the first column where they begin."""
    head, lines = _flat(table)
    rows, before = [], None
    cells = iter([row for row in table.rows if len(row) > 1])
    for line in lines:
        shown = [f"**{c.value}** ({c.around})" if isinstance(c, Cell) and c.best else str(c) for c in next(cells)]
        if len(line) > len(shown):
            shown = [line[0] if line[0] != before else "", *shown]
            before = line[0]
        rows.append(shown)
    safe = [[text.replace("|", "\\|") for text in row] for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in safe) + "\n"


def as_tex(table: Table) -> str:
    """The table in LaTeX, with its caption. Needs \\usepackage{booktabs}."""
    return as_frame(table).to_latex(index=False, escape=True, caption=table.caption, label=f"tab:{table.name}")


def said_markdown(part: Part) -> str:
    """The sentence of a part in Markdown: as it is, or as a list where it has several findings."""
    lines = part.sentence.splitlines()
    return part.sentence if len(lines) < 2 else "\n".join(f"- {line}" for line in lines)


def section_markdown(section: Section, level: int = 4) -> str:
    """What a section says of each dataset, with its tables that are not folded; pictures are left out."""
    parts = []
    for part in section.parts:
        parts.append(f"{'#' * level} {part.dataset}\n\n{said_markdown(part)}\n")
        parts += [f"{table.caption}:\n\n{as_markdown(table)}" for table in part.tables if not table.folded]
    return "\n".join(parts)

"""CSV files: cells, columns, headers, lines, layouts, encodings and bytes."""

import csv
import io
from random import Random

from tests.fuzz.judge import Judge
from tests.fuzz.mutate import TEXTS, damage
from tests.fuzz.settings import Project

_HEADER = ["size", "weight", "<b>colour</b>", "kind"]  # of the model `table`


def _rows(rng: Random, n: int) -> list[list[str]]:
    rows = [_HEADER]
    for _ in range(n):
        y, noise = rng.randrange(3), rng.gauss(0, 0.4)
        rows.append([f"{y + noise:.3f}", f"{9 * noise:.2f}", ["red", "green"][y % 2], ["apple", "melon", "pear"][y]])
    return rows


def _change(rng: Random, rows: list[list[str]]) -> list[list[str]]:
    """Change cells, a column, the header or lines."""
    rows, column, text = [[*row] for row in rows], rng.randrange(4), rng.choice(TEXTS)
    match rng.randrange(6):
        case 0:
            for _ in range(rng.choice([1, 3, 30])):
                rng.choice(rows)[column] = rng.choice(TEXTS)
        case 1:
            kinds = [lambda i: text, str, lambda i: f"{rng.gauss(0, 1):.9f}", lambda i: f"2024-01-{i % 28 + 1:02}",
                     lambda i: f"{i}e{rng.randrange(-330, 330)}", lambda i: rng.choice(["1", "x", ""])]  # fmt: skip
            kind = rng.choice(kinds)
            for i, row in enumerate(rows[1:]):
                row[column] = kind(i)
        case 2:
            rows[0][column] = rng.choice([*TEXTS, *_HEADER, "0", "prediction"])
        case 3:
            rows = [[*row, rng.choice([row[column], text])] for row in rows]
        case 4:
            rows = rng.choice([[[*row[:column], *row[column + 1 :]] for row in rows], rows[: rng.randrange(5)]])
        case _:
            i = rng.randrange(len(rows))
            rows[i] = rng.choice([rows[i][:-1], rows[i] * 2, [], rows[0]])
    return rows


def csv_bytes(rng: Random, n: int = 30) -> bytes:
    """A CSV file, more or less broken."""
    rows = _rows(rng, n)
    for _ in range(rng.choice([0, 1, 1, 2])):
        rows = _change(rng, rows) if all(len(row) >= 4 for row in rows) and rows else rows
    text, quoting = io.StringIO(newline=""), rng.choice([csv.QUOTE_MINIMAL] * 4 + [csv.QUOTE_ALL])
    ends, separator = rng.choice(["\n"] * 6 + ["\r\n", "\r", "\n\n"]), rng.choice(",,,,,,,,;\t| ")
    csv.writer(text, delimiter=separator, lineterminator=ends, quoting=quoting).writerows(rows)
    data = text.getvalue().encode(rng.choice(["utf-8"] * 8 + ["utf-8-sig", "utf-16", "latin-1"]), "replace")
    return damage(rng, data) if rng.random() < 0.2 else data


def run(rng: Random, judge: Judge) -> None:
    """Give a CSV file to a command, or to the stages `download` and `prepare`."""
    path = judge.folder / rng.choice(["a.csv"] * 8 + ["b.tsv", "a b.txt", "ü.data", "-.csv"])
    path.write_bytes(csv_bytes(rng, rng.choice([4, 30, 60])))
    action, model = rng.choice(["fit", "predict", "predict", "explain", "add", "prepare"]), judge.out / "m"
    if action == "fit":
        flags = rng.choice([[], ["--numeric", "weight"], ["--categories", "size"], ["--drop", "size"], ["--test", 0]])
        flags += rng.choice([[]] * 5 + [["--separator", ";"], ["--separator", "tab"], ["--separator", "\\"]])
        weights, target = rng.choice(["distance", "uniform", "attention"]), rng.choice(["kind"] * 5 + ["size", ""])
        words = ("--target", target, "-o", model, "-k", 5, "--weights", weights, *flags)
        judge.change(model, "fit", path, *words)
    elif action == "prepare":
        source = {"kind": "csv", "train": {"path": str(path)}, "target": "kind"}
        source |= rng.choice([{}, {}, {"rule": {"threshold": 1.0}}, {"numeric": ["size"]}, {"categories": ["size"]}])
        Project(judge, source, rng.choice([{}, {"numeric": "quantile"}, {"subset": 20}])).prepare()
    elif action == "add":
        model = judge.model(rng.choice(["table", "table", "vectors"]))
        judge.change(model, "add", model, path, *rng.choice([["--target", "kind"], ["--label", "apple"]]))
    else:
        flags = ["--first", 2] if action == "explain" else ["--probabilities", *rng.choice([[], ["--keep-going"]])]
        source, stdin = ("-", path.read_bytes()) if rng.random() < 0.3 else (path, b"")
        model = judge.model(rng.choice(["table", "table", "table", "vectors"]))
        judge.answers(judge.command(action, model, source, "--json", *flags, stdin=stdin))

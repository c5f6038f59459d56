"""Command lines: words replaced, removed, repeated and added; standard input."""

from random import Random

import numpy as np

from tests.fuzz.judge import Judge
from tests.fuzz.mutate import TEXTS
from tests.fuzz.runner import DIM
from tests.fuzz.tables import csv_bytes

_WORDS = [
    "--", "--json", "--help", "--alpha", "--seed", "-k", "--label", "--rows", "--first", "--shown", "--test", "-o",
    "--target", "--separator", "--weights", "--metric", "--missing", "--drop", "--force", "--threads", "0", "1e9",
    "1" * 30, "/dev/null", "/dev/full", "/proc/self/mem", "/dev/zero/x", "\udcff", "a\udc80.csv", "new/m", "x.csv",
    "x.jsonl", "x.png", "x.parquet", "~", ".", "cosine", "uniform", "yes", "²", "١٢",
]  # fmt: skip


def run(rng: Random, judge: Judge) -> None:
    """Change a command that works."""
    vectors, labels, rows = (judge.folder / name for name in ("x.npy", "y.npy", "rows.csv"))
    y, out = np.arange(20) % 2, judge.out / "m"
    np.save(vectors, np.random.default_rng(0).normal(size=(20, DIM)) + y[:, None])
    np.save(labels, np.array(["no", "yes"])[y])
    rows.write_bytes(csv_bytes(Random(0)))
    beside, table = judge.model("beside"), judge.model("table", judge.folder / "t")
    commands: list[list[object]] = [
        ["fit", vectors, "--rows", labels, "-o", out, "--weights", "distance", "-k", 5],
        ["fit", rows, "--target", "kind", "-o", out, "--weights", "uniform", "--test", 0.2],
        ["predict", beside, vectors, "-o", judge.out / "x.csv"], ["predict", beside, vectors, "--alpha", 0.1],
        ["predict", table, rows, "--json"], ["predict", table, "-", "--probabilities"],
        ["explain", beside, vectors, "--first", 2, "--shown", 3], ["explain", table, rows, "--first", 1],
        ["add", beside, vectors, "--rows", labels], ["add", table, rows, "--target", "kind"],
        ["forget", beside, 1, 2, 3], ["forget", table, "-"], ["datasets", "--params", rows],
    ]  # fmt: skip
    words = [str(word) for word in rng.choice(commands)]
    paths = [str(path) for path in (vectors, labels, rows, beside, table, judge.folder, judge.out)]
    for _ in range(rng.choice([1, 1, 2, 3])):
        word = rng.choice(rng.choice([_WORDS, TEXTS, paths])).replace("\0", "")
        i = rng.randrange(rng.random() < 0.9, len(words) + 1)
        words[i : i + rng.randrange(2)] = rng.choice([[word], [word], [rng.choice(_WORDS), word], ["-o", word], []])
    stdin = rng.choice([b"", b"", b"1 2", "é ² 1".encode(), b"\xff\xfe1", rows.read_bytes(), b"9" * 6000])
    changed = [beside, table] if {"add", "forget"} & set(words) else []
    judge.command(*words, stdin=stdin, writes=[judge.out, *changed])

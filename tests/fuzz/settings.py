"""params.yaml, datasets.yaml and presets: values, tags, encodings and bytes."""

from random import Random
from typing import Any

import yaml

from stages.check import check
from stages.download import download
from stages.prepare import prepare
from tests.fuzz.judge import ROOT, Judge
from tests.fuzz.mutate import damage, replace_value

_FILES = ("params.yaml", "datasets.yaml", "presets/none.yaml", "presets/experiment5.yaml")
_SETTINGS = {name: yaml.safe_load((ROOT / name).read_text("utf-8")) for name in _FILES}
_YAML = [
    "!!python/object/apply:os.getcwd []", "!!python/name:os.system ", "!foo 1", "!!int x", "!!float ''", "!!binary é",
    "!!timestamp x", "!!set {a, b}", "!!omap [a: 1]", "&a [*a]", "*none", "{<<: 3}", ".nan", ".inf", "-.inf", "1e999",
    "0o777", "0b", "2024-01-31", "2024-99-99", "12:30:45", "yes", "~", "[", "{", "'", "|\n  x", "? [a]", "%TAG", "---",
    "\t", "\0", "\x85", "{[1, 2]: 3}", "{null: 1}", "1_000", "[1, 2", "a: b: c", "@x", "`x", "9" * 5000, "[" * 2000,
    "[&a [" + "1, " * 9 + "1]" + "".join(f", &{b} [{f'*{a}, ' * 9}*{a}]" for a, b in ("ab", "bc", "cd", "de")) + "]",
]  # fmt: skip


class Project:
    """The folder `out` with the settings of the project, or of one dataset of a source; stages run in it."""

    def __init__(self, judge: Judge, source: Any = None, split: Any = None) -> None:
        self.judge = judge
        (judge.out / "presets").mkdir()
        for name in ("dvc.yaml", *_FILES):
            (judge.out / name).write_bytes((ROOT / name).read_bytes())
        if source is not None:
            self.write("params.yaml", {**_SETTINGS["params.yaml"], "datasets": ["a"]})
            own = {"source": source, "prepare": split or {}}
            self.write("datasets.yaml", {"a": {**_SETTINGS["datasets.yaml"]["iris"], **own}})

    def write(self, name: str, value: Any) -> None:
        """Replace a file of settings."""
        (self.judge.out / name).write_text(yaml.safe_dump(value, allow_unicode=True), "utf-8")

    def prepare(self) -> None:
        """Run `download` and `prepare`."""
        data, metrics = self.judge.out / "data", self.judge.out / "metrics"
        if self.judge.stage(download, "a", writes=[data / "raw"]):
            self.judge.stage(prepare, "a", "42", writes=[data / "split", metrics])


def run(rng: Random, judge: Judge) -> None:
    """Change files of settings, and check all; list the datasets."""
    project = Project(judge)
    for name in rng.sample(_FILES, rng.choice([1, 1, 2])):
        path, change, text = judge.out / name, rng.random(), (ROOT / name).read_text("utf-8")
        if change < 0.5:
            project.write(name, replace_value(rng, _SETTINGS[name]))
        elif change < 0.75:
            lines = text.split("\n")
            i = rng.choice([i for i, line in enumerate(lines) if ":" in line and not line.startswith("#")])
            lines[i] = f"{lines[i].partition(':')[0]}: {rng.choice(_YAML)}"
            path.write_text("\n".join(lines), "utf-8")
        else:
            encoded = text.encode(rng.choice(["utf-16", "utf-8-sig", "utf-32", "latin-1"]), "replace")
            path.write_bytes(encoded if change < 0.82 else damage(rng, text.encode()))
    judge.stage(check, writes=[judge.out / "data"])
    judge.command("datasets", *rng.choice([[], ["--json"]]))

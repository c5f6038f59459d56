"""Compare the entries of two versions of dvc.lock: what differs, why, and what a change reaches."""

from collections.abc import Mapping
from typing import Any

Key = tuple[str, ...]
Stages = dict[str, dict[str, Any]]
COMMAND, OTHER_BYTES = "its command", "same code and inputs, other bytes"
TIMING = "profile@"  # stages that write timings, which differ in every run


def flatten(value: Any, prefix: Key = ()) -> dict[Key, Any]:
    """Nested dicts as one dict, keyed by the paths to the leaves."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {path: leaf for key, inner in value.items() for path, leaf in flatten(inner, (*prefix, str(key))).items()}


def differing(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> list[Any]:
    """Keys that are in one mapping only, or whose values differ."""
    return [key for key in dict.fromkeys([*old, *new]) if (key in old) != (key in new) or old.get(key) != new.get(key)]


def hashes(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Checksums of a lock entry's `deps` or `outs` by path."""
    return {item["path"]: item.get("md5") or item.get("hash") for item in entry.get(key, [])}


def stale(status: Mapping[str, list[Any]], stages: Stages, ignored: set[str]) -> tuple[list[str], list[str], list[str]]:
    """Stages that `dvc repro` would rerun for changes of their own, and which inputs and outputs differ from dvc.lock.

    Data that a clone lacks does not count: missing paths that git ignores, if dvc.lock agrees on what they hold.
    `status` is that of `dvc status --json`, `stages` the entries of dvc.lock.
    """
    written = {item for entry in stages.values() for item in hashes(entry, "outs").items()}
    outs = {path for path, _ in written}
    names, inputs, outputs = [], [], []
    for name, changes in status.items():
        recorded = hashes(stages.get(name, {}), "deps") | hashes(stages.get(name, {}), "outs")
        agreed = {path for path, md5 in recorded.items() if (path, md5) in written or path not in outs}
        for change in changes:
            (kind, items), *_ = change.items() if isinstance(change, dict) else [("", {COMMAND: ""})]
            for path, state in items.items():
                if state not in ("deleted", "not in cache") or path not in agreed & ignored:
                    known_output = kind == "changed outs" and path in recorded
                    (outputs if known_output else inputs).extend(state if isinstance(state, dict) else [path])
                    names.append(name)
    return list(dict.fromkeys(names)), list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))


class Locks:
    """Why stages of dvc.lock differ between two revisions.

    Args:
        old, new: entries by stage.
        before, after: settings in effect, by dataset.

    Attributes:
        causes: of every stage that is in both, the inputs that differ: its command, deps, and settings in effect.
        without_effect: settings that differ and are overridden for the stage's dataset.
        producers: the stage that writes each output.
        unexplained: stages that gave other bytes from the same code, settings and inputs; timings do not count.
        reached: new stages, those whose code or settings differ, and those that read changed outputs of these.
    """

    def __init__(self, old: Stages, new: Stages, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self.old, self.new = old, new
        self.causes: dict[str, list[str]] = {}
        self.without_effect: dict[str, list[str]] = {}
        for name in [name for name in new if name in old]:
            self._compare(name, before, after)
        other = [name for name in self.causes if hashes(old[name], "outs") != hashes(new[name], "outs")]
        self.unexplained = [name for name in other if not self.causes[name] and not name.startswith(TIMING)]
        self.producers = {out: name for name, entry in new.items() for out in hashes(entry, "outs")}
        sources = {name: [self._below(cause) for cause in causes] for name, causes in self.causes.items()}
        self.reached = {name for name in new if name not in old or not all(sources[name])}
        while more := {name for name in sources if any(s & self.reached for s in sources[name])} - self.reached:
            self.reached |= more

    def _compare(self, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        old, new = self.old[name], self.new[name]
        item = name.partition("@")[2]
        dataset = next((d for d in before.keys() & after.keys() if f"{item}-".startswith(f"{d}-")), None)
        sides = [flatten(side[dataset]) if dataset else {} for side in (before, after)]
        self.causes[name] = [COMMAND] if old.get("cmd") != new.get("cmd") else []
        self.causes[name] += differing(hashes(old, "deps"), hashes(new, "deps"))
        self.without_effect[name] = []
        values = [flatten(entry.get("params", {})) for entry in (old, new)]
        for _, *parts in differing(*values):  # the first part is the file
            key = ".".join(parts)
            own = tuple(key.removeprefix(f"{dataset}.").split("."))
            hidden = all(own in side for side in sides) and sides[0][own] == sides[1][own]
            (self.without_effect if hidden else self.causes)[name].append(key)

    def _below(self, path: str) -> set[str]:
        return {name for out, name in self.producers.items() if f"{out}/".startswith(f"{path}/")}

    def edited(self, out: str) -> bool:
        """Whether both record the same bytes of an output; if it differs all the same, it was edited by hand."""
        stage = self.producers.get(out, "")
        return stage in self.old and hashes(self.old[stage], "outs").get(out) == hashes(self.new[stage], "outs")[out]

    def reaches(self, out: str) -> bool:
        """Whether the change can have moved an output: that of a stage it reaches or of none, or edited by hand."""
        return out not in self.producers or self.producers[out] in self.reached or self.edited(out)

    def describe(self, name: str) -> str:
        """The reason why a stage's entry differs; empty if nothing but timings does."""
        if name not in self.old:
            return "new"
        causes = [cause if cause == COMMAND else f"`{cause}`" for cause in self.causes[name]]
        causes += [f"`{key}` (no effect)" for key in self.without_effect[name]]
        causes += [OTHER_BYTES] if name in self.unexplained else []
        return ", ".join(causes[:6]) + (f" and {len(causes) - 6} more" if len(causes) > 6 else "")

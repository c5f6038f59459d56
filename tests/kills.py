"""`python -m tests.kills save|repro`: kill runs at random moments, and check what they leave."""

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

ROOT = Path(__file__).parents[1]


def work(kind: str, folder: Path) -> None:
    """Reproduce a stage, or save the models `old` and `new` in turn, in a process group of its own."""
    os.setsid()
    os.chdir(folder)
    log = os.open(folder.with_name("log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if kind == "repro":
        from dvc.cli import main

        sys.exit(main(["repro", "prepare@mine-42"]))
    from attnknn.app.model.model import Model

    for name in ("old", "new") * 3:
        Model.load(Path(name)).save(Path("m"))


def run(kind: str, folder: Path, kill_after: float | None = None) -> float:
    """Fork from a server that has imported everything, which takes longer than the work; return the seconds taken."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attnknn.app.model.fit", "dvc.repo", __name__])
    process, began = context.Process(target=work, args=(kind, folder)), time.monotonic()
    process.start()
    if kill_after is not None:
        time.sleep(kill_after)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # before it has its group
    process.join()
    assert process.exitcode == 0 or kill_after is not None, folder.with_name("log").read_text()
    return time.monotonic() - began


def set_up(kind: str, folder: Path) -> None:
    """A small copy of the project; or a table and two models."""
    folder.mkdir()
    if kind == "repro":
        sys.path.append(str(ROOT / "tests"))
        from tests.pipeline.test_pipeline import Project

        Project(folder)
        return
    from attnknn.app.model.fit import fit_model

    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    table.assign(y=np.repeat(["p", "q"], 30)).to_csv(folder / "rows.csv", index=False)
    for seed, name in enumerate(("old", "new"), 1):
        fit_model(folder / "rows.csv", target="y", weights="distance", seed=seed)[0].save(folder / name)


def reset(kind: str, folder: Path) -> dict[str, bytes]:
    """Remove the outputs; put the model `old` in their place. What killed writers left beside it stays."""
    (folder / "dvc.lock").unlink(missing_ok=True)
    for name in ("m", "data", "metrics", ".dvc/cache", ".dvc/tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if kind != "repro":
        shutil.copytree(folder / "old", folder / "m")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of the outputs, hidden ones too."""
    paths = [folder / "dvc.lock", *(p for name in ("m", "data", "metrics") for p in (folder / name).rglob("*"))]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.is_file()}


def state(kind: str, folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """What a killed run left: a number of finished stages, the old or the new model; or what is wrong."""
    if kind == "repro":
        locks = (files.get("dvc.lock") or b"stages: {}" for files in (contents(folder), after))
        stages, whole = (yaml.safe_load(lock)["stages"] for lock in locks)
        return f"{len(stages)} stages" if stages.items() <= whole.items() else "wrong: dvc.lock"
    from attnknn.app.model.model import Model

    try:
        Model.load(folder / "m")  # also restores what was moved away
    except ValueError as error:
        return f"wrong: {error}"
    now = contents(folder)
    return "old" if now == before else "new" if now == after else "wrong: neither the old nor the new model"


def kill_runs(kind: str, folder: Path, kills: int, seed: int = 0) -> Counter[str]:
    """Kill runs at moments spread evenly, and run again to the end after each; count what they left."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for stages
    folder, left = folder / "here", Counter[str]()
    set_up(kind, folder)
    for _ in range(2):  # the first one starts the server
        before = reset(kind, folder)
        seconds = run(kind, folder)
    after, names = contents(folder), sorted(os.listdir(folder))
    for moment in np.random.default_rng(seed).uniform(0, seconds, kills):
        reset(kind, folder)
        run(kind, folder, moment)
        left[state(kind, folder, before, after)] += 1
        if kind != "repro":
            reset(kind, folder)
        for path in (folder / ".dvc/tmp/rwlock", folder / "dvc.lock"):  # DVC rewrites them in place; see the Makefile
            if path.exists() and not path.read_bytes():
                left[f"with an empty {path.name}, which DVC refuses"] += 1
                path.unlink()
        run(kind, folder)
        if contents(folder) != after or sorted(os.listdir(folder)) != names:
            left[f"wrong: the next run ends with {sorted(os.listdir(folder))}"] += 1
    return left


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("kind", choices=["save", "repro"])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        states = kill_runs(args.kind, Path(temporary), args.kills, args.seed)
    print(f"{args.kind}: {args.kills} kills left {dict(states)}")
    sys.exit(any(name.startswith("wrong") for name in states))

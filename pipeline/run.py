"""One run of a stage: its item, its settings, and its paths, all as dvc.yaml declares them."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from attnknn.core.errors import one_line, require
from attnknn.core.files import atomic_folder, recover, write_csv, write_json
from pipeline.settings import Params, load

STAGES = Path("dvc.yaml")


class Run:
    """What a stage script works with.

    Args:
        stage: name in dvc.yaml.
        values: of the stage's matrix, in its order; `dataset` and `seed` are attributes too.

    Raises:
        InputError: the stage is not there, or the values do not fit its matrix.
    """

    def __init__(self, stage: str, *values: str) -> None:
        stages = load(STAGES)["stages"]
        require(stage in stages, f"{STAGES}: no stage {stage}")
        self.stage, declared = stage, stages[stage]
        self.checkpoints: list[Path] = []
        names = list(declared.get("matrix", {}))
        usage = " ".join([f"python -m stages.{stage}", *map(str.upper, names)])
        require(len(values) == len(names), f"{stage}: {len(values)} arguments given; usage: {usage}")
        self.item = dict(zip(names, values, strict=True))
        self.dataset = self.item.get("dataset")
        require(self.item.get("seed", "0").isdecimal(), f"{stage}: seed {self.item.get('seed')}; give a whole number")
        self.seed = int(self.item.get("seed", 0))
        outs = [next(iter(out)) if isinstance(out, dict) else out for out in declared.get("outs", [])]
        self.outs = [self._fill(path) for path in outs]
        self.declared = [*map(self._fill, declared.get("deps", [])), *self.outs]
        self.params = _Declared(Params(dataset=self.dataset), stage, _keys(declared.get("params", [])))

    def _fill(self, text: str) -> str:
        return re.sub(r"\$\{item\.(\w+)\}", lambda match: self.item[match.group(1)], text)

    def path(self, start: str, suffix: str = "") -> Path:
        """The declared dep or out that is `start` or lies in it, and ends in `suffix`.

        Raises:
            InputError: dvc.yaml declares none, or several, for this stage.
        """
        paths = [p for p in self.declared if f"{p}/".startswith(f"{start}/") and p.endswith(suffix)]
        require(len(paths) == 1, f"{STAGES}: stage {self.stage} declares {paths or 'nothing'} under {start}/*{suffix}")
        return Path(paths[0])

    @property
    def label(self) -> str:
        """The stage and its item, for progress bars and messages."""
        return f"{self.stage} {'/'.join(self.item.values())}"

    def checkpoint(self, *names: str) -> Path:
        """Path of the checkpoint that an interrupted training resumes from; `main` removes it after the stage."""
        name = "-".join([self.stage, *self.item.values(), *names])
        self.checkpoints.append(Path("data/resume") / f"{name}.safetensors")
        return self.checkpoints[-1]

    @cached_property
    def device(self) -> str:
        """The torch device, with the number of threads fixed for torch and BLAS."""
        from attnknn.core.device import use_device

        return use_device(self.params.device, self.params.threads)

    @property
    def cluster(self) -> str | None:
        """Address of the Ray cluster that embeds and searches, or None."""
        return os.environ.get("ATTNKNN_CLUSTER") or self.params.cluster or None

    @property
    def workers(self) -> int:
        """Processes that share independent fits."""
        from attnknn.core.device import n_workers

        return n_workers(self.device, self.params.threads)

    def fit_settings(self, k: int) -> dict[str, Any]:
        """Arguments of experiments that fit heads and tune baselines for k neighbours."""
        p = self.params
        return {"k": k, "fitting": p.train_attention.model_dump(), "grids": p.tune.model_dump(), "device": self.device}

    def track(self, unit: str) -> Callable[..., Iterable[Any]]:
        """A function (results, total=) → results, behind a progress bar that shows after two seconds on a terminal."""
        from tqdm import tqdm

        return partial(tqdm, desc=self.label, unit=unit, delay=2, disable=None)

    def write_metrics(self, values: Mapping[str, Any], name: str | None = None) -> None:
        """Write a metrics file, named after the stage unless told otherwise."""
        write_json(self.path("metrics", f"/{name or self.stage}.json"), values)

    def write_tables(
        self, columns: Mapping[str, Sequence[str]] | None = None, /, **tables: list[dict[str, Any]]
    ) -> None:
        """Write each table as CSV: under plots/ where dvc.yaml declares it there, else in the stage's data/results.

        Args:
            columns: headers of tables that may be empty.
        """
        columns = columns or {}
        in_git = [name for name in tables if any(out.startswith(f"plots/{name}/") for out in self.outs)]
        for name in in_git:
            write_csv(self.path(f"plots/{name}"), tables[name], columns.get(name, ()))
        if len(in_git) < len(tables):
            with atomic_folder(self.path("data/results")) as draft:
                for name in tables.keys() - set(in_git):
                    write_csv(draft / f"{name}.csv", tables[name], columns.get(name, ()))


class _Declared:
    """Settings that refuse what dvc.yaml does not declare for the stage: DVC would not see it change."""

    def __init__(self, params: Params, stage: str, keys: set[str]) -> None:
        self._params, self._stage, self._keys = params, stage, keys

    def __getattr__(self, name: str) -> Any:
        require(name in self._keys, f"{STAGES}: stage {self._stage} reads the setting {name} and does not declare it")
        return getattr(self._params, name)


def _keys(declared: Sequence[Any]) -> set[str]:
    """Names of the settings in a stage's `params`."""
    keys = {entry for entry in declared if isinstance(entry, str)}
    for entry in declared:
        for file, names in entry.items() if isinstance(entry, dict) else ():
            keys |= {name.rpartition(".")[2] for name in names} if file == "datasets.yaml" else set()
    return keys


def main(stage: Callable[[Run], None]) -> None:
    """Run a stage from the command line; what the user can mend ends in one line and exit code 2."""
    try:
        run = Run(stage.__name__, *sys.argv[1:])
        for path in run.outs:  # of a run that was killed
            recover(Path(path))
        stage(run)
        for path in run.checkpoints:
            path.unlink(missing_ok=True)
    except Exception as error:
        reason = one_line(error)
        if reason is None:
            raise
        print(f"error: {reason}", file=sys.stderr)
        sys.exit(2)

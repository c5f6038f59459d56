"""Write the report, one self-contained page and its tables, from metrics and plot data.

The same inputs give the same bytes: no timestamps, PNG pictures, fixed order.
"""

import base64
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from attnknn.core.files import atomic_folder
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.metrics import NORMAL_FROM
from attnknn.report import claims as claimed
from attnknn.report import plots as pictures
from attnknn.report.differences import Level
from attnknn.report.results import Run, all_conditions, read_runs
from attnknn.report.section import Section, as_frame, as_markdown, as_tex
from attnknn.report.sections import (
    ablation,
    calibration,
    encoder_ablation,
    ensemble,
    evaluate,
    explain,
    field_report,
    grow,
    hard,
    historic,
    imbalance,
    imbalance_trained,
    k_sweep,
    noise,
    noise_trained,
    probe,
    profile,
    selective,
    splits,
    theory,
    training,
    tta,
)
from attnknn.report.tables import digits_of

# Optional experiments, in the order of the page.
EXPERIMENTS = (
    *(explain, k_sweep, noise, noise_trained, imbalance, imbalance_trained, tta, ensemble, grow, hard, selective),
    *(ablation, encoder_ablation, probe, field_report, profile, theory),
)
# Sections whose differences are judged together at one level.
_JUDGED = (tta, ensemble, hard, noise_trained, imbalance_trained, encoder_ablation, grow, probe)
_SCALE = 0.7  # CSS pixels per pixel of a picture, for screens of high density
LIBRARIES = ("numpy", "scikit-learn", "scipy", "pandas", "torch", "torchvision", "faiss-cpu", "dvc")


def environment() -> dict[str, str]:
    """Python, platform, CPU count and library versions."""
    versions = {"Python": platform.python_version(), "platform": platform.platform(), "CPUs": str(os.cpu_count())}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _width(png: bytes) -> int:
    """CSS width of a PNG; the font size is the same in every picture."""
    return round(int.from_bytes(png[16:20], "big") * _SCALE)


def _uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one dict with dotted keys; lists stay whole."""
    if not isinstance(value, Mapping) or not value:
        return {} if isinstance(value, Mapping) else {prefix: value}
    return {k: v for key, inner in value.items() for k, v in flatten(inner, f"{prefix}.{key}".lstrip(".")).items()}


def _params_table(params: Mapping[str, Any], datasets: Sequence[str]) -> list[tuple[str, Any, list[Any]]]:
    """Rows of key, common value, and each dataset's override (None without one)."""
    base = flatten({k: v for k, v in params.items() if k not in ("sources", "overrides")})
    changes = [flatten(params["overrides"][name]) for name in datasets]
    return [(key, value, [change.get(key) for change in changes]) for key, value in base.items()]


def _source(source: Mapping[str, Any]) -> str:
    """The source of a dataset as text."""
    files = [source[part]["path"] for part in ("train", "test") if source.get(part)]
    name = source.get("loader") or source.get("name") or source.get("path") or ", ".join(files)
    return f"{source['kind']}: {name}"


def read_all(
    metrics: Path, plots: Path, datasets: Sequence[str], seeds: Sequence[int], evaluated: bool = True
) -> list[Run]:
    """The results of all stages that ran; see `results.read_runs`.

    Raises:
        InputError: a file is missing or damaged.
    """
    tables = {module.__name__.rpartition(".")[2]: module.TABLES for module in EXPERIMENTS}
    return read_runs(metrics, plots, datasets, seeds, tables, evaluated)


def sections(
    runs: Sequence[Run],
    claims: Sequence[claimed.Claim],
    plots: Path | None,
    preset: str,
    resamples: int,
    workers: int = 1,
    only_probed: Sequence[Run] = (),
) -> list[Section]:
    """All sections with results, in the order of the page; without examples where plots is None.

    Args:
        only_probed: runs without `evaluate`, shown in the sections on representations of images only.
        workers: processes that draw sections; see `parallel.run_parallel`.
    """
    level = Level(claimed.ALPHA, resamples)
    calls: list[Callable[[], Section]] = [
        partial(evaluate.section, runs, claims),
        partial(splits.section, runs),
        partial(explain.section, runs, plots),
        partial(calibration.section, runs),
    ]
    for module in EXPERIMENTS:
        if module is not explain:
            more = [level] if module in _JUDGED else [plots] if module is field_report else []
            shown = [*runs, *only_probed] if module in (probe, field_report) else runs
            calls.append(partial(module.section, shown, *more))
    calls += [partial(historic.section, runs, level, preset), partial(training.section, runs)]
    return [section for section in run_parallel(calls, workers) if section.parts]


def write_report(
    metrics: Path,
    plots: Path,
    pictures_folder: Path,
    out: Path,
    datasets: Sequence[str],
    seeds: Sequence[int],
    params: Mapping[str, Any],
    revision: str,
    workers: int = 1,
) -> None:
    """Write index.html, comparison.csv, results.md and tables/*.csv and *.tex to the folder OUT, in one step.

    Args:
        metrics, plots: the output folders of the stages; only the files of `datasets` and `seeds` are read.
        pictures_folder: holds `gallery` and `field_pictures`.
        params: all settings, as a dict.
        revision: of the code, as printed.
        workers: see `sections`.

    Raises:
        InputError: a file is missing or damaged.
    """
    runs = read_all(metrics, plots, datasets, seeds)
    resamples = params["evaluate"]["resamples"]
    claims = claimed.claims(all_conditions(runs))
    digits = {name: digits_of([run for run in runs if run.dataset == name]) for name in datasets}
    parts = sections(runs, claims, pictures_folder, params["preset"], resamples, workers)
    every, summary = evaluate.claim_rows(claims, digits), evaluate.summary(runs, claims)
    jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"colour": pictures.method_colour, "uri": _uri, "width": _width}
    page = jinja.from_string(resources.files("attnknn.report").joinpath("page.html").read_text("utf-8")).render(
        summary=summary,
        summary_picture=evaluate.summary_picture(claims),
        claims=every,
        n_primary=sum(c.primary for c in claims),
        n_others=sum(not c.primary for c in claims),
        several=any(c.seeds > 1 for c in claims),
        sections=parts,
        alpha=claimed.ALPHA,
        confidence=params["evaluate"]["confidence"],
        resamples=resamples,
        fewest_errors=claimed.FEWEST_ERRORS,
        counted=NORMAL_FROM,
        params=_params_table(params, datasets),
        datasets=datasets,
        sources={name: _source(params["sources"][name]) for name in datasets},
        environment=environment(),
        revision=revision,
    )
    with atomic_folder(out) as draft:
        (draft / "index.html").write_text(page + "\n", "utf-8")
        all_conditions(runs).to_csv(draft / "comparison.csv", index=False, lineterminator="\n")
        (draft / "tables").mkdir()
        tables = [("claims", every), ("summary", summary)]
        tables += [(f"{s.name}_{p.dataset}_{t.name}", t) for s in parts for p in s.parts for t in p.tables]
        for name, table in tables:
            as_frame(table).to_csv(draft / "tables" / f"{name}.csv", index=False, lineterminator="\n")
            (draft / "tables" / f"{name}.tex").write_text(as_tex(table), "utf-8")
        lines = ["### Claims", "", as_markdown(every), f"### {parts[0].title}", ""]
        for part in parts[0].parts:
            lines += [f"#### {part.dataset}", ""]
            lines += [f"{table.caption}:\n\n{as_markdown(table)}" for table in part.tables if not table.folded]
        (draft / "results.md").write_text("\n".join(lines), "utf-8")

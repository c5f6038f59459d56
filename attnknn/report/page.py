"""Write the report, one self-contained page and its tables, from metrics and tables.

The same inputs give the same bytes: no timestamps, PNG pictures, fixed order.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from attnknn.core.errors import InputError
from attnknn.core.files import atomic_folder
from attnknn.core.parallel import run_parallel
from attnknn.evaluation.opponents import BEST, OURS
from attnknn.report.names import method_colour
from attnknn.report.results import Run, all_conditions, read_runs
from attnknn.report.sections import (
    ablation,
    audit,
    banks,
    examples,
    fields,
    historic,
    methods,
    neighbours,
    probabilities,
    theory,
    unseen,
)
from attnknn.report.tables import Section, as_frame, as_tex
from attnknn.report.verdicts import ALPHA, FEWEST_ERRORS, every_claim

_SCALE = 0.6  # CSS pixels per pixel of a picture of 160 dpi
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


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one dict with dotted keys; lists stay whole."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {k: v for key, inner in value.items() for k, v in flatten(inner, f"{prefix}.{key}".lstrip(".")).items()}


def _settings(params: Mapping[str, Any], datasets: Sequence[str]) -> list[tuple[str, Any, list[Any]]]:
    """Rows of key, common value, and each dataset's override (None without one)."""
    base = flatten({k: v for k, v in params.items() if k not in ("sources", "overrides")})
    changes = [flatten(params["overrides"][name]) for name in datasets]
    return [(key, value, [change.get(key) for change in changes]) for key, value in base.items()]


def _source(source: Mapping[str, Any]) -> str:
    """The source of a dataset as text."""
    files = [source[part]["path"] for part in ("train", "test") if source.get(part)]
    name = source.get("loader") or source.get("name") or source.get("path") or ", ".join(files)
    return f"{source['kind']}: {name}"


def sections(runs: Sequence[Run], claimed: pd.DataFrame, workers: int = 1) -> list[Section]:
    """All sections with results, in the order of the page.

    Args:
        workers: processes that draw sections; see `parallel.run_parallel`.

    Raises:
        InputError: a table lacks a column.
    """
    evaluated = [run for run in runs if "intervals" in run.tables]
    for name in ("k_sweep", "tta"):  # git holds their plots, DVC their tests
        if any(name in run.tables for run in runs) and not any(f"{name}_paired" in run.tables for run in runs):
            print(f"{name} is left out of the report: no results in data/results/{name}; run `dvc repro {name}`")
    trained = [partial(section, runs) for section in (banks.noise_trained, banks.imbalance_trained)]
    probed = [partial(section, runs) for section in (fields.probe, fields.field_report)]
    rows = [partial(section, runs) for section in (audit.audit, unseen.new_classes, unseen.novelty, unseen.drift)]
    calls: list[Callable[[], Section]] = [*trained, *rows, *probed]
    if evaluated:
        others = (
            neighbours.tta,
            neighbours.ensemble,
            probabilities.selective,
            ablation.ablation,
            ablation.encoder_ablation,
            ablation.finetune,
        )
        last = (neighbours.profile, theory.theory, historic.historic, methods.training)
        calls = [
            *(partial(section, evaluated) for section in (methods.evaluate, methods.splits, examples.examples)),
            partial(probabilities.calibration, evaluated, claimed),
            partial(neighbours.k_sweep, evaluated),
            *(partial(section, evaluated, claimed) for section in (banks.noise, banks.imbalance)),
            *trained,
            *rows,
            *(partial(section, evaluated) for section in others),
            *probed,
            *(partial(section, evaluated) for section in last),
        ]
    try:
        drawn = list(run_parallel(calls, workers))
    except KeyError as error:
        raise InputError(f"results: no column or value {error} in a table; run `dvc repro`") from None
    return [section for section in drawn if section.figures or section.tables or section.html]


def write_report(
    root: Path,
    out: Path,
    datasets: Sequence[str],
    seeds: Sequence[int],
    params: Mapping[str, Any],
    revision: str,
    workers: int = 1,
) -> None:
    """Write index.html, comparison.csv, and tables/*.csv and *.tex to the folder OUT, in one step.

    Args:
        root: holds the outputs of the stages, metrics/, plots/ and data/.
        params: all settings, as a dict.
        revision: of the code, as printed.
        workers: see `sections`.

    Raises:
        InputError: a file is missing or damaged.
    """
    runs = read_runs(root, datasets, seeds)
    claimed = every_claim(runs)
    parts = sections(runs, claimed, workers)
    summary, every = methods.summary(runs, claimed), methods.claims_table(claimed)
    jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"colour": method_colour, "uri": examples.png_uri}
    jinja.filters["width"] = lambda png: round(int.from_bytes(png[16:20], "big") * _SCALE)
    page = jinja.from_string(resources.files("attnknn.report").joinpath("page.html").read_text("utf-8")).render(
        counts=methods.counts(claimed),
        summary=summary,
        summary_figure=methods.summary_figure(claimed),
        claims=every,
        sections=parts,
        alpha=ALPHA,
        confidence=params["evaluate"]["confidence"],
        fewest_errors=FEWEST_ERRORS,
        params=_settings(params, datasets),
        datasets=datasets,
        sources={name: _source(params["sources"][name]) for name in datasets},
        environment=environment(),
        revision=revision,
    )
    with atomic_folder(out) as draft:
        (draft / "index.html").write_text(page + "\n", "utf-8")
        scores = pd.concat([all_conditions(runs, ours).assign(ours=ours) for ours in (OURS, BEST)])
        scores.to_csv(draft / "comparison.csv", index=False, lineterminator="\n")
        (draft / "tables").mkdir()
        for name, table in [("claims", every), ("summary", summary)] + [
            (f"{s.name}_{t.name}", t) for s in parts for t in s.tables
        ]:
            as_frame(table).to_csv(draft / "tables" / f"{name}.csv", index=False, lineterminator="\n")
            (draft / "tables" / f"{name}.tex").write_text(as_tex(table), "utf-8")

"""The report: one self-contained page and tables beside it, made of metrics and plot data only.

The same inputs give the same bytes: no time of day, PNG pictures, fixed order.
"""

import base64
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined

from attnknn import plots as pictures
from attnknn.files import new_folder
from attnknn.report import claims as claimed
from attnknn.report.results import Run, joined, read_runs
from attnknn.report.tables import (
    as_markdown,
    as_tex,
    comparison,
    digits_for,
    fixed,
    p_value,
)

LIBRARIES = ("numpy", "scikit-learn", "scipy", "pandas", "torch", "torchvision", "faiss-cpu", "dvc")


def environment() -> dict[str, str]:
    """Python, platform, CPU count and the versions of the libraries that numbers come from."""
    found = {"Python": platform.python_version(), "platform": platform.platform(), "CPUs": str(os.cpu_count())}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one dict with dotted keys; lists stay whole."""
    if not isinstance(value, Mapping) or not value:
        return {} if isinstance(value, Mapping) else {prefix: value}
    return {k: v for key, inner in value.items() for k, v in flatten(inner, f"{prefix}.{key}".lstrip(".")).items()}


def _params_table(params: Mapping[str, Any], datasets: Sequence[str]) -> list[tuple[str, Any, list[Any]]]:
    """Rows of key, the value for all, and what each dataset has instead (None where nothing differs)."""
    base = flatten({k: v for k, v in params.items() if k not in ("sources", "overrides")})
    changes = [flatten(params["overrides"][name]) for name in datasets]
    return [(key, value, [change.get(key) for change in changes]) for key, value in base.items()]


def _source(source: Mapping[str, Any]) -> str:
    """Where a dataset comes from, in a few words."""
    files = [source[part]["path"] for part in ("train", "test") if source.get(part)]
    name = source.get("loader") or source.get("name") or source.get("path") or ", ".join(files)
    return f"{source['kind']}: {name}"


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _note(runs: Sequence[Run], confidence: float) -> str:
    """What the numbers of one dataset rest on."""
    tests = sorted({r.json["prepare"]["test"] for r in runs})
    rows = " or ".join(f"{n:,}" for n in tests) + (" test row" if tests == [1] else " test rows")
    if len(runs) == 1:
        return f"{rows}, seed {runs[0].seed}; with the bootstrap {100 * confidence:g} % interval"
    return f"{rows}, {len(runs)} seeds; mean ± standard deviation over seeds"


def _pictures(runs: Sequence[Run], methods: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Pictures of one dataset as (text for who cannot see it, data URI), by section."""
    name, paired, bins = runs[0].dataset, joined(runs, "paired"), joined(runs, "reliability")
    moved = [
        (f"{name}: differences in {pictures.METRICS[m]}", pictures.differences(paired[paired["metric"] == m], m))
        for m in claimed.CLAIMED
    ]
    reliable = [
        (
            f"{name}: reliability of {pictures.method_name(m)}",
            pictures.reliability(bins[bins["method"] == m], m),
        )
        for m in methods
    ]
    training, attention = [r.tables["training"] for r in runs], [r.tables["attention"] for r in runs]
    epoch = [{"epoch": r.json["train_embedder"]["best_epoch"]} for r in runs]
    kept = [e | {"val_accuracy": r.json["train_embedder"]["val_accuracy"]} for e, r in zip(epoch, runs, strict=True)]
    best = [t.nsmallest(1, "val_nll").iloc[0].to_dict() for t in attention]
    colour = pictures.method_colour
    loss, accuracy = {"loss": colour("distance")}, {"val_accuracy": colour("distance_vector")}
    best = [{"epoch": b["epoch"], "val_nll": b["val_nll"]} for b in best]
    nll = {"fit_nll": colour("distance"), "val_nll": colour("attention")}
    training_pictures = [
        ("encoder loss", pictures.curves(training, loss, epoch, title="Encoder: training loss", ylabel="loss")),
        (
            "encoder validation accuracy",
            pictures.curves(training, accuracy, kept, title="Encoder: kNN on val", ylabel="accuracy"),
        ),
        ("attention NLL", pictures.curves(attention, nll, best, title="Attention head", ylabel="NLL")),
    ]
    curves = [(f"{name}: {alt}", png) for alt, png in training_pictures]
    sections = {"differences": moved, "reliability": reliable, "curves": curves}
    return {key: [(alt, _data_uri(png)) for alt, png in found] for key, found in sections.items()}


def _tuned(runs: Sequence[Run]) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        learned = {k: v for k, v in run.json["train_attention"].items() if k in ("temperature", "prior")}
        for method, values in {**run.json["tuned"], "Attention, at its start": learned}.items():
            text = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
            rows.append({"seed": run.seed, "method": pictures.method_name(method), "values": text})
    return rows


def _head(runs: Sequence[Run]) -> str:
    """What fitting the head changed on val, in words."""
    tables = [r.tables["attention"]["val_nll"] for r in runs]
    start, end = (float(np.mean([pick(t) for t in tables])) for pick in (lambda t: t.iloc[0], lambda t: t.min()))
    if end >= start:
        return f"Fitting did not lower the head's validation NLL ({start:.4f}): it stays tuned distance weighting."
    return f"Fitting took the head's validation NLL from {start:.4f} (tuned distance weighting) to {end:.4f}."


def _limit(claims: Sequence[claimed.Claim], seeds: int, resamples: int, alpha: float) -> str:
    """A warning where the bootstrap is too small to decide NLL or ECE among so many claims, or nothing."""
    # The smallest p of a paired bootstrap is 2/(R+1); several seeds double it, Holm takes it times the claims.
    least = 2 * (2 if seeds > 1 else 1) / (resamples + 1)
    if least * len(claims) < alpha:
        return ""
    return (
        f"{resamples:,} bootstrap resamples are few for {len(claims)} claims: a p value of NLL or ECE is at least "
        f"{least:.2g} before its adjustment, so “undecided” there may only mean too few of them. "
        f"Set evaluate.resamples to {int(least * (resamples + 1) * len(claims) / alpha):,} or more."
    )


def write_report(
    metrics: Path,
    plots: Path,
    out: Path,
    datasets: Sequence[str],
    seeds: Sequence[int],
    params: Mapping[str, Any],
    revision: str,
    alpha: float = 0.01,
) -> None:
    """Write index.html, comparison.csv, comparison.tex and results.md to the folder OUT, in one step.

    Args:
        metrics, plots: the folders that the stages wrote; only the files of `datasets` and `seeds` are read.
        params: all of the settings, as a dict.
        revision: of the code that made the numbers, as it is to be printed.
        alpha: see `attnknn.report.claims.claims`.

    Raises:
        InputError: a file is missing or damaged.
    """
    runs = read_runs(metrics, plots, datasets, seeds)
    of = {name: [run for run in runs if run.dataset == name] for name in datasets}
    paired: list[dict[str, Any]] = joined(runs, "paired").to_dict("records")  # type: ignore[assignment]
    intervals = joined(runs, "intervals")
    confidence = params["evaluate"]["confidence"]
    claims = claimed.claims(paired, alpha)
    answers: dict[str, claimed.Verdict] = {
        name: claimed.answer([c for c in claims if c.dataset == name]) for name in datasets
    }
    notes = {name: _note(of[name], confidence) for name in datasets}
    digits = {name: digits_for(min(r.json["prepare"]["test"] for r in of[name])) for name in datasets}
    tables = {name: comparison(intervals[intervals["dataset"] == name], digits[name]) for name in datasets}
    sections = [
        {
            "name": name,
            "answer": answers[name],
            "claims": [c for c in claims if c.dataset == name],
            "sentence": claimed.sentence([c for c in claims if c.dataset == name]),
            "note": notes[name],
            "digits": digits[name],
            "table": tables[name],
            "paired": [row for row in paired if row["dataset"] == name],
            "intervals": intervals[(intervals["dataset"] == name) & intervals["metric"].isin(claimed.CLAIMED)],
            "pictures": _pictures(of[name], list(tables[name])),
            "tuned": _tuned(of[name]),
            "head": _head(of[name]),
            "sizes": [{"seed": r.seed, **r.json["prepare"]} for r in of[name]],
            "source": _source(params["sources"][name]),
        }
        for name in datasets
    ]
    jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"fixed": fixed, "p": p_value, "method": pictures.method_name, "colour": pictures.method_colour}
    page = jinja.from_string(resources.files("attnknn.report").joinpath("page.html").read_text("utf-8")).render(
        headline=claimed.headline(answers),
        limit=_limit(claims, len(seeds), params["evaluate"]["resamples"], alpha),
        sections=sections,
        metric_names=pictures.METRICS,
        higher=pictures.HIGHER_IS_BETTER,
        n_claims=len(claims),
        alpha=alpha,
        seeds=seeds,
        confidence=confidence,
        resamples=params["evaluate"]["resamples"],
        fewest_errors=claimed.FEWEST_ERRORS,
        params=_params_table(params, datasets),
        datasets=datasets,
        environment=environment(),
        revision=revision,
    )
    with new_folder(out) as draft:
        (draft / "index.html").write_text(page + "\n", "utf-8")
        _write_tables(draft, intervals, tables, notes)


def _write_tables(folder: Path, intervals: pd.DataFrame, tables: dict[str, Any], notes: dict[str, str]) -> None:
    intervals.to_csv(folder / "comparison.csv", index=False, lineterminator="\n")
    (folder / "comparison.tex").write_text(as_tex(tables, notes), "utf-8")
    parts = [as_markdown(name, table, f"{notes[name][0].upper()}{notes[name][1:]}.") for name, table in tables.items()]
    (folder / "results.md").write_text("\n".join(parts), "utf-8")

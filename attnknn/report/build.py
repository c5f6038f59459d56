"""The report: one self-contained page and tables beside it, made of metrics and plot data only.

The same inputs give the same bytes: no time of day, PNG pictures, fixed order.
"""

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
from attnknn.metrics import NORMAL_FROM
from attnknn.report import claims as claimed
from attnknn.report import figures, tables
from attnknn.report.results import Run, everywhere, joined, read_runs
from attnknn.report.tables import digits_for, fixed, p_value

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


def _note(runs: Sequence[Run], confidence: float) -> str:
    """What the numbers of one dataset rest on."""
    tests = sorted({r.json["prepare"]["test"] for r in runs})
    rows = " or ".join(f"{n:,}" for n in tests) + (" test row" if tests == [1] else " test rows")
    if len(runs) == 1:
        return f"{rows}, seed {runs[0].seed}; with the bootstrap {100 * confidence:g} % interval"
    return f"{rows}, {len(runs)} seeds; mean ± standard deviation over seeds"


def _tuned(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What was chosen or fitted for each method; `added` tells the calibrations from the methods themselves."""
    rows = []
    for run in runs:
        learned = {k: v for k, v in run.json["train_attention"].items() if k in ("temperature", "prior")}
        calibrated = set(run.tables["intervals"]["method"]) - set(run.json["evaluate"])
        for method, values in {**run.json["tuned"], "Attention, at its start": learned}.items():
            if not values:
                continue
            text = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
            text = "unchanged: no fit lowered the NLL on validation rows" if "unchanged" in values else text
            added = method in calibrated
            rows.append({"seed": run.seed, "method": pictures.method_name(method), "values": text, "added": added})
    return rows


def _head(runs: Sequence[Run]) -> str:
    """What fitting the head changed on val, in words."""
    tables = [r.tables["attention"]["val_nll"] for r in runs]
    start, end = (float(np.mean([pick(t) for t in tables])) for pick in (lambda t: t.iloc[0], lambda t: t.min()))
    if end >= start:
        return f"Fitting did not lower the head's validation NLL ({start:.4f}): it stays tuned distance weighting."
    return f"Fitting took the head's validation NLL from {start:.4f} (tuned distance weighting) to {end:.4f}."


def headroom(runs: Sequence[Run], digits: int) -> str:
    """How many test rows the neighbours could get right under the best of all weights, in words."""
    at = {
        k: fixed(float(np.mean([r.json["headroom"][f"oracle_at_{k}"] for r in runs])), digits) for k in ("1", "5", "k")
    }
    of_k = " or ".join(str(k) for k in sorted({r.json["headroom"]["k"] for r in runs}))
    return (
        f"The nearest neighbour has the true class for {at['1']} of the test rows, one of the nearest 5 for {at['5']}, "
        f"one of all {of_k} for {at['k']}: no votes of these neighbours get more right."
    )


def beside_linear(runs: Sequence[Run]) -> str:
    """How far attention's NLL on the clean memory is from that of the encoder's linear head, in words."""
    table = joined(runs, "intervals")
    nll = table[table["metric"] == "nll"].groupby("method")["value"].mean()
    if "linear_temperature" not in nll:
        return ""
    gap = float(nll["attention"] / nll["linear_temperature"]) - 1
    paired = joined(runs, "paired")
    row = (paired["method"] == "attention") & (paired["baseline"] == "linear_temperature") & (paired["metric"] == "nll")
    p = " and ".join(p_value(float(value)) for value in paired[row]["p"])
    where = "above" if gap > 0 else "below"
    return (
        f"Attention's NLL is {abs(gap):.1%} {where} that of the encoder's own linear head with temperature "
        f"(p {p}, not corrected)."
    )


def carried(ablated: pd.DataFrame, digits: int) -> str:
    """Which parts the head misses most, by the NLL on val, in words.

    Args:
        ablated: of `tables.ablated`.
    """
    nll = ablated[ablated["metric"] == "nll"].set_index("variant")
    rises = nll[nll["group"] == "without"]["validation"] - nll["validation"]["full"]
    most = rises[rises.round(digits) > 0].nlargest(3)
    if most.empty:
        return "No part that is taken out raises the NLL on val."
    named = [f"{name.replace('_', ' ')} ({fixed(rise, digits, sign=True)})" for name, rise in most.items()]
    return f"Taken out one at a time, the NLL on val rises most {', '.join(named)}."


def _section(runs: Sequence[Run], found: Sequence[claimed.Claim], confidence: float, source: str) -> dict[str, Any]:
    """Everything that the page says of one dataset.

    Args:
        found: the claims about this dataset, of all its conditions.
    """
    digits = digits_for(min(r.json["prepare"]["test"] for r in runs))
    intervals, own, paired = everywhere(runs, "intervals"), joined(runs, "intervals"), joined(runs, "paired")
    base = list(runs[0].json["evaluate"])
    table = tables.comparison(own[own["method"].isin(base)], digits)
    parts = tables.ablated(joined(runs, "ablation")) if any("ablation" in r.tables for r in runs) else None
    under = tables.conditions(intervals, digits)
    verdicts = claimed.answers(found)
    return {
        "name": runs[0].dataset,
        "answer": claimed.overall(list(verdicts.values())),
        "answers": [
            {"condition": s[1], "answer": v, "sentence": claimed.sentence([c for c in found if c.setting == s])}
            for s, v in verdicts.items()
        ],
        "claims": found,
        "note": _note(runs, confidence),
        "digits": digits,
        "table": table,
        "calibrations": tables.calibrations(own, paired, digits),
        "conditions": under if len(under) > 1 else [],
        "ablation": tables.ablation(parts, digits) if parts is not None else [],
        "carried": carried(parts, digits) if parts is not None else "",
        "ablation_runs": int(parts["runs"].max()) if parts is not None else 0,
        "headroom": headroom(runs, digits),
        "beside_linear": beside_linear(runs),
        "paired": everywhere(runs, "paired").to_dict("records"),
        "intervals": own[own["metric"].isin(claimed.CLAIMED)],
        "pictures": {
            "differences": figures.comparisons(runs, list(table)),
            "rates": figures.against_rate(runs, intervals),
            "ablation": figures.forests(runs[0].dataset, parts) if parts is not None else [],
            "reliability": figures.reliability(runs, list(table)),
            "curves": figures.curves(runs),
        },
        "tuned": _tuned(runs),
        "head": _head(runs),
        "sizes": [{"seed": r.seed, **r.json["prepare"]} for r in runs],
        "source": source,
    }


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
    confidence, resamples = params["evaluate"]["confidence"], params["evaluate"]["resamples"]
    claims = claimed.claims(everywhere(runs, "paired"), everywhere(runs, "validation"), alpha)
    sections = [
        _section(of[name], [c for c in claims if c.dataset == name], confidence, _source(params["sources"][name]))
        for name in datasets
    ]
    jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"fixed": fixed, "p": p_value, "method": pictures.method_name, "colour": pictures.method_colour}
    page = jinja.from_string(resources.files("attnknn.report").joinpath("page.html").read_text("utf-8")).render(
        headline=claimed.headline(claimed.answers(claims)),
        out_of_reach=claimed.out_of_reach(claims, resamples, alpha),
        beyond=claimed.beyond(claims),
        sections=sections,
        metric_names=pictures.METRICS,
        claim_names=claimed.NAMES,
        calibration_names=pictures.CALIBRATIONS,
        group_names={group: name for group, (name, _) in pictures.GROUPS.items()},
        higher=pictures.HIGHER_IS_BETTER,
        n_claims=len(claims),
        several=any(c.runs > 1 for c in claims),
        alpha=alpha,
        seeds=seeds,
        confidence=confidence,
        resamples=resamples,
        fewest_errors=claimed.FEWEST_ERRORS,
        counted=NORMAL_FROM,
        params=_params_table(params, datasets),
        datasets=datasets,
        environment=environment(),
        revision=revision,
    )
    with new_folder(out) as draft:
        (draft / "index.html").write_text(page + "\n", "utf-8")
        everywhere(runs, "intervals").to_csv(draft / "comparison.csv", index=False, lineterminator="\n")
        cells, notes = {s["name"]: s["table"] for s in sections}, {s["name"]: s["note"] for s in sections}
        (draft / "comparison.tex").write_text(tables.as_tex(cells, notes), "utf-8")
        parts = [tables.as_markdown(name, cells[name], f"{note[0].upper()}{note[1:]}.") for name, note in notes.items()]
        first = tables.claims_markdown(claims, {s["name"]: s["digits"] for s in sections})
        (draft / "results.md").write_text("\n".join([f"### Claims\n\n{first}", *parts]), "utf-8")

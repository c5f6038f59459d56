"""The summary of metrics that `dvc metrics diff` shows."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from import_closure import ROOT
from pipeline.run import Run
from stages.summary import summary


def test_means_over_seeds_of_what_is_best_on_validation_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrated distance weighting is best on val, the plain one on test; the interval's ends are the outer ones."""
    for name in ("dvc.yaml", "datasets.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    params = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"datasets": ["iris"], "seeds": [1, 2]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics").mkdir()
    test_nll = {"attention": 0.2, "uniform": 0.5, "distance": 0.1, "distance_vector": 0.4, "cnn": 0.3}
    val_nll = test_nll | {"distance_vector": 0.05}
    for seed in (1, 2):
        tables = {name: [f"method,metric,value,{name}"] for name in ("intervals", "validation")}
        for table, values in zip(tables.values(), (test_nll, val_nll), strict=True):
            for method, nll in values.items():
                for metric, value in {"accuracy": 0.9, "nll": nll * seed, "ece": 0.01, "brier": 0.1}.items():
                    table.append(f"{method},{metric},{value},")
        tables["paired"] = ["method,baseline,metric,difference,low,high"]
        tables["paired"] += [f"attention,distance_vector,nll,{-seed},{-seed - 1},{2 - seed}"]
        tables["paired"] += ["attention,distance,nll,9,9,9", "attention,distance_vector,accuracy,9,9,9"]
        for name, table in tables.items():
            (tmp_path / "plots" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / f"plots/{name}/iris-{seed}.csv").write_text("\n".join(table))
    summary(Run("summary"))
    (values,) = json.loads((tmp_path / "metrics/summary.json").read_text()).values()
    for role, nll in {"attention": 0.3, "baseline": 0.6, "network": 0.45}.items():
        assert values[role] == pytest.approx({"accuracy": 0.9, "nll": nll, "ece": 0.01}), role
    assert values["nll_attention_minus_baseline"] == {"difference": -1.5, "low": -3, "high": 1}
    assert sum(map(len, values.values())) == 12

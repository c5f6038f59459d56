"""The summary of metrics that `dvc metrics diff` shows."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from import_closure import ROOT
from pipeline.run import Run
from stages.summary import summary


def test_means_over_seeds_of_attention_and_its_opponents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of an opponent are all of the one chosen by the NLL; the interval's ends are the outer ones."""
    for name in ("dvc.yaml", "datasets.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    params = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"datasets": ["iris"], "seeds": [1, 2]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics").mkdir()
    nll = {"attention": 0.2, "best attention": 0.1, "kNN": 0.4, "without neighbours": 0.3, "": 0.1}
    (tmp_path / "plots/intervals").mkdir(parents=True)
    for seed in (1, 2):
        rows = ["role,method,metric,value,difference,difference_low,difference_high,ours"]
        for role, value in nll.items():
            for metric, score in {"accuracy": 0.9, "nll": value * seed, "ece": 0.01, "brier": 0.1}.items():
                ends = (-seed, -seed - 1, 2 - seed) if (role, metric) == ("kNN", "nll") else (9, 9, 9)
                rows.append(f"{role},{role}_nll,{metric},{score},{','.join(map(str, ends))},attention")
        rows[1:] = [row.replace("kNN,kNN_nll,accuracy,0.9", "kNN,kNN_accuracy,accuracy,0.99") for row in rows[1:]]
        rows.append(",kNN_nll,accuracy,0.9,9,9,9,attention")
        rows.append("kNN,kNN_nll,nll,0.4,9,9,9,best attention")
        (tmp_path / f"plots/intervals/iris-{seed}.csv").write_text("\n".join(rows))
    summary(Run("summary"))
    (values,) = json.loads((tmp_path / "metrics/summary.json").read_text()).values()
    for role, mean in {"attention": 0.3, "best attention": 0.15, "kNN": 0.6, "without neighbours": 0.45}.items():
        assert values[role] == pytest.approx({"accuracy": 0.9, "nll": mean}), role
    assert values["nll_attention_minus_kNN"] == {"difference": -1.5, "low": -3, "high": 1}
    assert sum(map(len, values.values())) == 11

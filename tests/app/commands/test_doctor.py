"""`attnknn doctor`."""

import json

import faiss
import pytest
import torch

from attnknn.app.commands import doctor
from command_line import attnknn, succeeded


def test_this_machine() -> None:
    checks = {check["what"]: check for check in json.loads(succeeded("doctor", "--json"))}
    assert {"Python", "packages", "torch threads", "torchvision", "faiss", "git", "dvc"} <= set(checks)
    assert not [check for check in checks.values() if check["state"] == "missing"]
    assert all(check["mend"] for check in checks.values() if check["state"] == "note")
    assert f"torch {torch.__version__}".partition("+")[0] in checks["packages"]["found"]
    assert faiss.__version__ in checks["faiss"]["found"]
    out = succeeded("doctor")
    assert all(name in out for name in checks)


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version

    def version(name: str) -> str:
        if name in ("faiss-cpu", "dvc"):
            raise doctor.PackageNotFoundError(name)
        return "0.1" if name == "scipy" else real(name)

    required = ["faiss-cpu>=1.11", "scipy>=1.11", 'dvc>=3.60; extra == "pipeline"']
    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "requires", lambda name: required)
    done = attnknn("doctor")
    assert done.exit_code == 1
    for line in ("faiss-cpu: pip install 'faiss-cpu>=1.11'", "scipy: pip install 'scipy>=1.11'", "'attnknn[pipeline]'"):
        assert line in done.stdout
    assert "pip install 'dvc>=3.60'" not in done.stdout, "an extra is optional"
    required.pop(0)
    monkeypatch.setattr(doctor, "version", real)
    assert attnknn("doctor").exit_code == 0

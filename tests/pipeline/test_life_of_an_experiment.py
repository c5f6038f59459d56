"""The commands of docs/guide/life-of-an-experiment.md, run in their order in a small project, with what they leave."""

import re
from pathlib import Path

from repository import Repository

from import_closure import BLOCK, ROOT

PAGE = (ROOT / "docs/guide/life-of-an-experiment.md").read_text("utf-8")
DVC_YAML = """\
stages:
  evaluate:
    cmd: mkdir -p metrics plots models && tee metrics/summary.json plots/nll.csv < params.yaml > models/head
    params: [k_eval]
    outs:
      - metrics/summary.json: {cache: false}
      - plots/nll.csv: {cache: false}
      - models/head
metrics: [metrics/summary.json]
"""


def shell(title: str) -> list[str]:
    """The blocks of shell below a heading."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(f"{title}\n"))
    return [block for language, block in BLOCK.findall(text) if language == "sh"]


def experiments(project: Repository, *where: str) -> set[str]:
    refs = project("git", "ls-remote", *(where or ["."]), "refs/exps/*/*/*")
    return {name.rsplit("/", 1)[1] for name in refs.splitlines()}


def test_the_commands_of_the_page_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    project = Repository(tmp_path / "project")
    for name, text in {"dvc.yaml": DVC_YAML, "params.yaml": '{"k_eval": 50}\n', ".gitignore": "/models\n"}.items():
        (project.folder / name).write_text(text)
    project.with_hub(tmp_path / "origin", tmp_path / "storage")
    colleague = tmp_path / "colleague"
    project("git", "clone", "-q", str(tmp_path / "origin"), str(colleague))

    def run(block: str, folder: Path = project.folder) -> str:
        done = project.run("sh", "-ec", block, cwd=folder)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def k_eval(folder: Path = project.folder) -> str:
        return (folder / "params.yaml").read_text() + (folder / "models/head").read_text()

    (runs,) = shell("Run")
    run(runs)
    assert experiments(project) == {"k20", "k5"}
    assert k_eval().count("5}") == 2

    (compare,) = shell("Compare")
    assert re.search(r"k_eval +20 +5 +-15", run(compare))

    apply_and_commit, branch = shell("Keep")
    base = project("git", "rev-parse", "HEAD").strip()
    run(apply_and_commit)
    assert k_eval().count("20}") == 2
    assert project("git", "status", "--porcelain") == ""
    assert "up to date" in project("dvc", "status")
    run(branch)
    assert project("git", "rev-parse", "neighbours-20~1").strip() == base

    push, pull = shell("Share")
    run(push)
    assert experiments(project, "origin") == {"k20"}
    assert "up to date" in run(pull, colleague)
    assert k_eval(colleague).count("20}") == 2

    (remove,) = shell("Remove")
    run("\n".join(line for line in remove.splitlines() if not line.startswith("dvc gc")))  # it asks on a terminal
    assert experiments(project) == {"k20"}
    assert experiments(project, "origin") == set()

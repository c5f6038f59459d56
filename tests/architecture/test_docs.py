"""The documentation is true: tutorials run as they stand, and what pages name exists."""

import ast
import contextlib
import io
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from dvc.cli.parser import get_main_parser
from dvc.utils.hydra import apply_overrides

from attnknn import __version__
from attnknn.app.cli import app
from command_line import succeeded
from import_closure import BLOCK, ROOT
from pipeline.check import check

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index")
COMMAND: Any = typer.main.get_command(app)
MADE = ("data", "models", "report")  # what the pipeline makes is not there before it ran; dvc.yaml says what it is
OF_DVC = (".dvc/cache", ".dvc/config.local")
FILES = (".md", ".yaml", ".lock", ".toml", ".cff", ".py")  # names alone that can only be files of this repository


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def loaded(name: str) -> Any:
    """A YAML file of the repository."""
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


every_page = pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=name_of)


def code_in(text: str) -> Iterator[str]:
    """Code in a line of text, and blocks of shell."""
    yield from (block for language, block in BLOCK.findall(text) if language in ("sh", ""))
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", BLOCK.sub("", text))


def included() -> dict[str, str]:
    """Pages of the site that are files elsewhere in the repository."""
    return ast.literal_eval(
        re.findall(r"^INCLUDED = (\{.*?^\})", (DOCS / "hooks.py").read_text("utf-8"), re.M | re.S)[0]
    )


def anchors(text: str) -> set[str]:
    """Of headings, as the site names them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def commands_in(text: str) -> Iterator[tuple[str, str]]:
    """Each `attnknn <command>` of a shell block, with the words after it up to the end of that command."""
    whole = re.sub(r"\\\n\s*", " ", text)
    for line in re.findall(r"(?:^|[|;&] *)attnknn ([^|;&\n#]*)", whole, re.MULTILINE):
        words = line.split()
        yield words[0], " ".join(words[1:])


def run_shell(text: str, folder: Path) -> str:
    """Standard output of shell lines, by the commands of this environment and this copy of the library.

    Lines that are all plain `attnknn` commands run in this process, which has imported what they need.
    """
    commands = [shlex.split(line) for line in text.splitlines()]
    if all(command[0] == "attnknn" for command in commands) and not set(text) & set("|<>*$\\"):
        return "".join(succeeded(*words) for _, *words in commands)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["sh", "-ec", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_run_and_print_what_they_say(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict = {"__name__": "tutorial"}
    printed = ""
    blocks = BLOCK.findall(page.read_text("utf-8"))
    assert blocks
    for number, (language, text) in enumerate(blocks, 1):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, f"{name_of(page)}, block {number}", "exec"), scope)
            printed = out.getvalue()
        elif language == "sh":
            printed = run_shell(text, tmp_path)
        else:
            assert language == "text", f"{page.name}: block {number} is {language!r}; expected python, sh or text"
            expected, result = ([x.rstrip() for x in block.strip("\n").splitlines()] for block in (text, printed))
            assert expected == result, f"{page.name}: block {number}"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: nothing is there"
        assert not anchor or anchor in anchors(target.read_text("utf-8")), f"{link}: no such heading"


@cache
def made_by_stages() -> list[str]:
    """Patterns of what the stages write, and of the folders that it is in."""
    stages = loaded("dvc.yaml")["stages"].values()
    outs = [next(iter(out)) if isinstance(out, dict) else out for stage in stages for out in stage["outs"]]
    patterns = [re.sub(r"\\\$\\\{[^}]*\}", r"[\\w-]+", re.escape(out)).split("/") for out in outs]
    parents = ["/".join(parts[: n + 1]) for parts in patterns for n in range(len(parts))]
    return parents + [f"{'/'.join(parts)}/.*" for parts in patterns]


def exists(path: str) -> bool:
    """Whether a path is in the repository, or would be once the pipeline has run."""
    if path.split("/")[0] not in MADE or path.startswith("data/source"):
        return path in OF_DVC or (ROOT / path).exists()
    return any(re.fullmatch(pattern, path) for pattern in made_by_stages())


@every_page
def test_paths_and_modules_that_are_named_are_there(page: Path) -> None:
    tops, text = {path.name for path in ROOT.iterdir()} | set(MADE), page.read_text("utf-8")
    for code in code_in(text):
        for word in re.findall(r"(?<![\w./:~-])[\w.][\w./-]*", code):
            path = word.rstrip("/.")
            known = "/" in word and path.split("/")[0] in tops
            if known or ("/" not in word and word.endswith(FILES) and code == word):
                assert exists(path), f"`{code}`: there is no {path}"
    named = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    for name in [*named, *(code for code in code_in(text) if re.fullmatch(r"attnknn(\.\w+)+", code))]:
        pkgutil.resolve_name(name)


@every_page
def test_commands_and_options_that_are_named_are_there(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for code in code_in(text):
        for name, words in commands_in(code):
            if name.isupper() or name == "…":
                continue
            options = re.findall(r"(?<!\S)--?[a-z][a-z-]*", f"{name} {words}")
            command = COMMAND if name.startswith("-") else COMMAND.commands.get(name)
            assert command is not None, f"attnknn {name}: no such command"
            known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
            known |= {"--install-completion", "--show-completion"} if command is COMMAND else set()
            assert set(options) <= known, f"attnknn {name}: it has {', '.join(sorted(known))}"
        assert set(re.findall(r"^make (\w+)", code, re.MULTILINE)) <= targets
        check_overrides(code, tmp_path)
    for words in dvc_commands(text):
        get_main_parser().parse_args(words)  # raises DvcParserError


def dvc_commands(text: str) -> Iterator[list[str]]:
    """The words of each `dvc …` in blocks of shell."""
    blocks = "\n".join(block for language, block in BLOCK.findall(text) if language in ("sh", ""))
    for line in re.sub(r"\\\n\s*", " ", blocks).splitlines():
        if re.search(r"\bdvc ", line):
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for operator, words in groupby(lexer, key=lambda word: set(word) <= set("();<>|&")):
                if not operator and (command := list(words))[0] == "dvc":
                    yield command[1:]


def check_overrides(code: str, folder: Path) -> None:
    """Check what each line sets by -S, over the project's settings; datasets of one's own are not there."""
    for line in filter(re.compile(r"-S ").search, code.splitlines()):
        shutil.copytree(ROOT / "presets", folder / "presets", dirs_exist_ok=True)
        for name in ("params.yaml", "datasets.yaml"):
            shutil.copy(ROOT / name, folder)
        for file, override in re.findall(r"-S [\"']?(?:([\w/.]+\.yaml):)?([^\s\"']+)", line):
            apply_overrides(folder / (file or "params.yaml"), [override])
        datasets = yaml.safe_load((folder / "params.yaml").read_text("utf-8"))["datasets"]
        if set(datasets) <= set(loaded("datasets.yaml")):
            check(folder)


def test_both_ci_systems_run_the_same_make_targets() -> None:
    targets = [
        set(re.findall(r"make (?:--silent )?(\w+)", (ROOT / name).read_text("utf-8")))
        for name in (".github/workflows/review.yml", ".gitlab-ci.yml")
    ]
    assert targets == [{"check", "review"}] * 2


def test_commands_settings_and_stages_of_the_report_and_of_the_guide_to_experiments_exist(tmp_path: Path) -> None:
    for path in (ROOT / "attnknn/report").rglob("*.py"):
        code = path.read_text("utf-8")
        check_overrides(code, tmp_path)
        assert set(re.findall(r'"dvc repro (\w+)"', code)) <= set(loaded("dvc.yaml")["stages"]), path
        for block, key in re.findall(r"\bset (\w+)\.(\w+)=", code):
            assert key in loaded("params.yaml")[block], f"{path}: {block}.{key}"
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/guide/experiments.md").read_text("utf-8"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} <= set(loaded("dvc.yaml")["stages"])


@every_page
def test_python_is_python_and_settings_in_yaml_are_allowed(page: Path, tmp_path: Path) -> None:
    code = BLOCK.findall(page.read_text("utf-8"))
    for text in (text for language, text in code if language == "python"):
        ast.parse(text)
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    for text in (text for language, text in code if language == "yaml"):
        entries = yaml.safe_load(text)
        for name, changed in (("params.yaml", {"datasets": list(entries)}), ("datasets.yaml", entries)):
            (tmp_path / name).write_text(yaml.safe_dump(loaded(name) | changed, sort_keys=False), "utf-8")
        check(tmp_path)


def test_the_site_lists_every_page_and_loads_nothing_from_elsewhere() -> None:
    def listed(entries: list[Any]) -> Iterator[str]:
        for entry in entries:
            inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
            yield from listed(inner) if isinstance(inner, list) else [inner]

    site = loaded("mkdocs.yml")
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES} | {n for n in included() if n.endswith(".md")}
    assert sorted(listed(site["nav"])) == sorted(pages)
    assert site["strict"] is True
    assert site["theme"]["font"] is False
    own = [*site["extra"]["polyfills"], *site["extra_css"], *site.get("extra_javascript", [])]
    assert all((DOCS / path).is_file() for path in own)
    assert "analytics" not in site["extra"]
    assert not any("mermaid" in page.read_text("utf-8") for page in PAGES)


def test_the_citation_is_of_this_version() -> None:
    cited = loaded("CITATION.cff")
    assert (str(cited["version"]), cited["type"], cited["license"]) == (__version__, "software", "MIT")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)

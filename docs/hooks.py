"""Files of the repository that are pages of the site as they stand, so that nothing is kept twice."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
INCLUDED = {
    "more/results.md": "RESULTS.md",
    "more/benchmarks.md": "benchmarks/RESULTS.md",
    "more/accuracy.png": "benchmarks/accuracy.png",
    "more/changelog.md": "CHANGELOG.md",
}


def on_files(files: Any, config: Any) -> Any:
    """Add them to the site."""
    for name, path in INCLUDED.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at these files to their pages; keep rows of numbers, which crowd out all else, out of searches."""
    path = page.file.src_uri
    if path == "more/results.md" or path.startswith("results/"):
        page.meta["search"] = {"exclude": True}
    if path in INCLUDED:
        return markdown.replace("(docs/", "(../")
    up = "../" * path.count("/")
    for name, file in INCLUDED.items():
        markdown = markdown.replace(f"({up}../{file}", f"({up}{name}")
    return markdown

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
    """Adapt the links of RESULTS.md; keep rows of numbers, which would crowd out everything else, out of searches."""
    if page.file.src_uri == "more/results.md" or page.file.src_uri.startswith("results/"):
        page.meta["search"] = {"exclude": True}
    return markdown.replace("(docs/", "(../") if page.file.src_uri == "more/results.md" else markdown

"""`attnknn serve`."""

from pathlib import Path

import typer

from attnknn.app.commands.arguments import MODEL
from attnknn.core.errors import needs_extra


def serve(
    model: Path = MODEL,
    host: str = typer.Option("127.0.0.1", help="Address to listen on; 0.0.0.0 lets other machines connect."),
    port: int = typer.Option(8000, help="Port; 0 selects a free one."),
    open_page: bool = typer.Option(False, "--open", help="Open the page in a browser."),
    allow_save: bool = typer.Option(False, help="Let the page write its changes to MODEL."),
) -> None:
    """Serve a local web page to explore a model: query it, see neighbours, add and forget examples."""
    with needs_extra("serve", "serve"):
        from attnknn.app.server.serve import serve as run
    run(model, host, port, open_page, allow_save)

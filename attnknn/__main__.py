"""`python -m attnknn` is `attnknn`."""

from attnknn.app.cli import app

if __name__ == "__main__":
    app(prog_name="attnknn")

"""The commands of `attnknn`, a module or two each; `cli.py` puts them together."""

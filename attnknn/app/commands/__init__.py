"""The commands of `attnknn`; `cli.py` registers them."""

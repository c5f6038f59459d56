"""Command line and web page."""

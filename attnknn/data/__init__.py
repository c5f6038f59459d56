"""Download, read and split data sets."""

"""Errors, files, artifacts, devices, progress."""

"""Benchmarks against other libraries: `python -m benchmarks`. Results are in RESULTS.md."""

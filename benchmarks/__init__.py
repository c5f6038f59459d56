"""What it costs, beside real peers in the same run: `python -m benchmarks`. See RESULTS.md here."""

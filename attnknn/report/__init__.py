"""The report, from metrics and tables."""

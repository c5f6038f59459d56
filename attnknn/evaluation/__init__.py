"""Metrics, calibration, intervals and paired tests."""

"""Metrics, calibration, confidence intervals, paired tests, abstention and conformal sets."""

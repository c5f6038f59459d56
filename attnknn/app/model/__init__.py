"""Saved models: a classifier with its input, readable examples and test cases."""

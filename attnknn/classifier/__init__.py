"""The scikit-learn classifier."""

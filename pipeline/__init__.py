"""Settings, and the paths and artifacts of one stage run."""

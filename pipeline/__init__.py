"""Settings, and the paths and artifacts of one stage run."""

import os

# Read by OpenMP when torch loads it: how long a thread spins while it waits. With libgomp's default, training takes many
# times as long on a machine that is busy with something else; without any spinning, twice as long on an idle one.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

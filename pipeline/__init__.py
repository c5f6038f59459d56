"""Settings, and the paths and artifacts of one stage run."""

import os

# Read by OpenMP when torch loads it. Threads that spin while they wait make training twenty times slower on a machine
# that is busy with something else.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

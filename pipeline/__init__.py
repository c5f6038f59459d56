"""Settings, and the paths and artifacts of one stage run."""

import os

# How long OpenMP's threads spin while they wait; read when torch loads it. By libgomp's default training takes many
# times as long beside other busy processes; without any spinning it takes twice as long on an idle machine.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

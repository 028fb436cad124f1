"""The engine beside its peers and its limits: make perf, and the check on a GPU."""

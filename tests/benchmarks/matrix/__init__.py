"""Word errors of recorded speech in each way that it is recognized: `python -m
tests.benchmarks.matrix`."""

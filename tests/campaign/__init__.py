"""Reliability campaign: random hostile cases, each in a process with limits, for minutes or hours.

`python -m tests.campaign` runs all parts and prints a table. A part generates cases from seeds and
runs them; `worker` runs one part, each case in a fork. An input that fails is made smaller and kept
in tests/corpus, which test_sample.py runs again with a few cases of each part.
"""

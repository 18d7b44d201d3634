"""Batch work on the machines of a Ray cluster; ray is the extra `cluster` of the package."""

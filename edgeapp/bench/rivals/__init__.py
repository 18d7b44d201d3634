"""Everybody side by side on the same random weights: `edgeapp bench rivals`, and `bench engine`."""

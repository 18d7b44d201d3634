"""Benchmarks on this machine: speed of decoding methods, lag of live captions."""

"""Decoding in int8 by kernels of our own, compiled once on the machine that they run on."""

"""int8 encoder and decoder kernels, compiled on this machine; README.md is the guide."""

"""Builds, proves, tests and publishes wheels of PyTorch C++/CUDA/HIP extensions."""

__version__ = "0.1.0"

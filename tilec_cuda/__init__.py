"""The CUDA backend: NVIDIA GPUs, with nothing but Python packages and a driver."""

__version__ = "0.1.0"

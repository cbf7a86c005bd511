"""The CUDA backend: NVIDIA GPUs, with nothing but Python packages and a driver."""

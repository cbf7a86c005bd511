"""CPU backend of tilec: tile kernels through C."""

__version__ = "0.1.0"

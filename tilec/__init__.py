"""tilec: a tile-kernel compiler in Python."""

__version__ = "0.1.0"

"""A small complete backend for tilec."""

__version__ = "0.3.0"

"""Fails as a plugin does whose driver library is missing."""

raise OSError("libbroken.so.1: cannot open shared object file")

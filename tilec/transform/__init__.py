"""Passes that know no target, and the classes that passes are made of."""

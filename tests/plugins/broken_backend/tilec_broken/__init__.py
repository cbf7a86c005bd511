"""A plugin whose import fails."""

"""Warm sandboxes, made ahead and given away once."""

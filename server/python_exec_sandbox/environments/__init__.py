"""Environments of packages: which there are, and who waits for which."""

"""Sandboxes made by bubblewrap on Linux."""

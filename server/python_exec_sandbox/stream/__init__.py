"""Bytes in, values out; no input or output of its own."""

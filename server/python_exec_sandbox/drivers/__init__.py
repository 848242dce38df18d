"""The kinds of place a script can run in."""

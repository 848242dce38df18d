"""Promise SAME: a script in a warm sandbox behaves as under a fresh ``uv run``."""

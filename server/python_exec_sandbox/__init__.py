"""A local Python sandbox for AI agents, spoken to over MCP."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("python-exec-sandbox")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

"""The MCP face of the server; the only importer of mcp."""

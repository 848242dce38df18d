"""The least server that the SDK makes: what ours is measured against. Run with ``python -m``."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")


@server.tool()
async def execute_python(script: str) -> str:
    """Run a script."""
    return script


if __name__ == "__main__":
    server.run()

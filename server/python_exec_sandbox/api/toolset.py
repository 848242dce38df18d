"""The tools that clients see."""

from mcp.server.mcpserver.tools import Tool

from python_exec_sandbox.api.check_environment import check_environment_tool
from python_exec_sandbox.api.execute_python import execute_python_tool
from python_exec_sandbox.api.read_output import read_output_tool
from python_exec_sandbox.api.runtime import Runtime
from python_exec_sandbox.api.validate_script import validate_script_tool
from python_exec_sandbox.run.outputs import OutputStore
from python_exec_sandbox.settings import Settings


def all_tools(settings: Settings, runtime: Runtime) -> list[Tool]:
    """Them all, the one that is used most first."""
    outputs = OutputStore()
    return [
        execute_python_tool(settings, runtime, outputs),
        read_output_tool(settings, outputs),
        validate_script_tool(settings, runtime),
        check_environment_tool(settings, runtime),
    ]

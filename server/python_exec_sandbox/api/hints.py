"""What a caller may have overlooked, read from how a run ended."""

import re

from python_exec_sandbox.model.result import Verdict
from python_exec_sandbox.run.records import RunResult
from python_exec_sandbox.script import module_names

LAST_TRACEBACK_CHARACTERS = 2000
"""The end of stderr in which a traceback's last line is looked for."""

_MISSING_MODULE = re.compile(
    r"^(?:ModuleNotFoundError|ImportError): No module named '([\w.]{1,100})'", re.MULTILINE
)
_NO_PIP = re.compile(
    r"No module named '?pip\b|\bpip3?: (?:command )?not found|No such file or directory: '[^']{0,80}\bpip3?'"
    r"|^[ \t]*+[!%][ \t]*+pip3? ",  # a notebook's command, quoted by a SyntaxError
    re.MULTILINE,
)
_NO_GIT = re.compile(r"\bgit: (?:command )?not found|No such file or directory: 'git'")
_END_OF_INPUT = re.compile(r"^EOFError: EOF when reading a line", re.MULTILINE)

NO_PACKAGES = "No packages can be installed: the server runs with --network none."


def hints(result: RunResult, stderr: str, *, can_install: bool = True) -> list[str]:
    """Sentences of advice; ``stderr`` is its cleaned text, at least the end of it."""
    if result.verdict is Verdict.OK and not (result.stdout.total_bytes or result.stderr.total_bytes):
        return ["No output: did you forget print()?"]
    if result.verdict is not Verdict.FAILED:
        return []
    last = stderr[-LAST_TRACEBACK_CHARACTERS:]
    found = []
    missing = _MISSING_MODULE.search(last)
    module = missing[1].partition(".")[0] if missing else ""
    if module and module != "pip":
        found.append(_about(module, can_install=can_install))
    if _NO_PIP.search(last):
        found.append(f"pip is not here; {'name packages in dependencies.' if can_install else NO_PACKAGES}")
    if _NO_GIT.search(last):
        found.append("git is not here; download an archive instead.")
    if _END_OF_INPUT.search(last) and not result.stdin_given:
        found.append("The script asked for input, and there was none: give it with the stdin argument.")
    return found


def _about(module: str, *, can_install: bool) -> str:
    if module_names.is_standard(module):
        return f"{module} is part of Python but not in the sandbox, and no package brings it; do without it."
    if module_names.is_removed(module):
        return f"{module} is no longer part of Python (3.13 and newer lack it); do without it."
    if not can_install:
        return NO_PACKAGES
    package = module_names.package_of(module) or module
    return (
        f'To install the package, name it in the dependencies argument (["{package}"]) or in a block at the '
        f'top of the script: # /// script, # dependencies = ["{package}"], # /// on three lines (PEP 723).'
    )

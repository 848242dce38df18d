"""A trial of everything a sandbox is made of, and what later ones need not find out again.

Does what the runner does up to the waiting interpreter, in a sandbox in which no script ever runs. Prints one
JSON object: ``cache``, what uv has learned about the interpreter (path below its cache -> base64), and ``code``,
this program's own modules compiled for the interpreter it runs with (path in the archive -> base64).
"""

import base64
import importlib.util
import json
import marshal
import os
import select
import sys
import time
import zipfile

from .children import Children
from .interpreter import Interpreter
from .options import Options

_SECONDS = 20.0
_POLL_MS = 2

_LEARNED = "interpreter-"
"""The part of uv's cache that depends on nothing but the interpreter."""

_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
"""PEP 552: valid by a hash that nobody compares; the archive has no sources to compare with."""


def main(argv: list[str]) -> None:
    options = Options(argv)
    options.limit()
    _wait_for_interpreter(options)
    result = {
        "cache": _encoded(_learned(options.place.environment["UV_CACHE_DIR"])),
        "code": _encoded(compiled(sys.argv[0])),
    }
    print(json.dumps(result))


def _wait_for_interpreter(options: Options) -> None:
    family = Children()
    interpreter = Interpreter(options.place, options.identity, family, options.python)
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    deadline = time.monotonic() + _SECONDS
    while not interpreter.try_gate():
        family.reap()
        interpreter.update()
        if interpreter.uv_has_ended() or time.monotonic() > deadline:
            interpreter.read_notes()
            sys.exit(
                f"no interpreter of Python {options.python}: {interpreter.notes.decode(errors='replace')}"
            )
        if poll.poll(
            _POLL_MS
        ):  # nothing is ever sent: it has ended, as the server may before bwrap watches it
            sys.exit("the server is gone")


def _learned(cache: str) -> dict[str, bytes]:
    found = {}
    for folder, _, names in os.walk(cache):
        for name in names:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, cache)
            if inside.startswith(_LEARNED):
                with open(path, "rb") as file:
                    found[inside] = file.read()
    return found


def compiled(archive: str) -> dict[str, bytes]:
    """The archive's modules; what an earlier trial has compiled stays as it is."""
    with zipfile.ZipFile(archive) as file:
        modules = {name: file.read(name) for name in file.namelist()}
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED
    return {name: code for name, code in modules.items() if name.endswith(".pyc")} | {
        f"{name}c": head
        + marshal.dumps(compile(source, os.path.join(archive, name), "exec", dont_inherit=True))
        for name, source in modules.items()
        if name.endswith(".py")
    }


def _encoded(files: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode("ascii") for name, content in files.items()}

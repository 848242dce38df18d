"""What a script says of itself in its inline metadata (PEP 723)."""

import difflib
import re
import tomllib
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.blocks import Block, find_blocks
from python_exec_sandbox.script.problems import Problems

MAX_BLOCK_CHARACTERS = 64 * 1024
"""Twice what requirements may have in all; keeps hostile TOML from costing time."""

REFUSED_UV_KEYS = frozenset(
    {"sources", "index", "index-url", "default-index", "extra-index-url", "find-links", "no-index"}
)
"""Keys of ``[tool.uv]`` that say where packages come from: that is the server's setting, and to ignore
them could install another package of the same name."""

MAX_DOTS = 100
"""Dots outside strings in one line of a block; the TOML reader's time grows with the square of a key's parts."""

MAX_CONDITIONS = 64
"""Whether conditions can hold together takes a time that grows with the square of their number."""

MAX_KEYS = 100
"""Keys of a block; each unknown one is compared with those that may be meant."""

_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'")

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The contents of the one ``script`` block. ``line`` is where its dependencies stand in the script,
    or where the block opens; 0 without a block. ``notes`` are sentences about what was ignored."""

    dependencies: tuple[str, ...] = ()
    requires_python: str | None = None
    line: int = 0
    notes: tuple[str, ...] = ()


def read_metadata(text: str) -> Metadata:
    """The metadata of the script ``text`` (line feeds only), empty if it has none.

    Raises:
        RequestError: a block is malformed, doubled, or has keys of the wrong kind; names each script line.
    """
    found = find_blocks(text)
    problems = Problems()
    for mistake in found.mistakes:
        problems.add(mistake)
    blocks = [block for block in found.blocks if block.type == "script"]
    if len(blocks) > 1:
        places = " and ".join(str(block.line) for block in blocks[:4])
        problems.add(
            f"The script has {len(blocks)} metadata blocks (opened in lines {places}); only one is allowed. "
            "Put all dependencies into one block."
        )
    metadata = Metadata()
    if len(blocks) == 1:
        with problems.collecting():
            metadata = _interpret(blocks[0])
    problems.raise_any()
    return metadata


def _interpret(block: Block) -> Metadata:
    table = _parse(block)
    if len(table) > MAX_KEYS:
        raise RequestError(
            f"The metadata block opened in line {block.line} of the script has {len(table):,} keys; at most "
            f"{MAX_KEYS} are accepted."
        )
    problems = Problems()
    notes: list[str] = []
    dependencies = table.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(one, str) for one in dependencies):
        problems.add(
            f"Line {_line_of(block, 'dependencies')} of the script: 'dependencies' must be a list of texts, "
            'such as ["requests>=2", "rich"].'
        )
        dependencies = []
    requires = table.get("requires-python")
    if requires is not None:
        with problems.collecting():
            _check_requires(requires, _line_of(block, "requires-python"))
    for key in table.keys() - {"dependencies", "requires-python", "tool"}:
        _judge_unknown(block, key, problems, notes)
    _judge_tool(block, table.get("tool"), problems, notes)
    problems.raise_any()
    return Metadata(
        dependencies=tuple(dependencies),
        requires_python=requires,
        line=_line_of(block, "dependencies"),
        notes=tuple(notes),
    )


def _parse(block: Block) -> dict[str, Any]:
    content = "\n".join(block.lines)
    if len(content) > MAX_BLOCK_CHARACTERS:
        raise RequestError(
            f"The metadata block opened in line {block.line} of the script has {len(content):,} characters; "
            f"at most {MAX_BLOCK_CHARACTERS:,} are accepted."
        )
    for n, line in enumerate(block.lines, start=1):
        if _STRING.sub("", line).count(".") > MAX_DOTS:
            raise RequestError(f"Line {block.line + n} of the script: too many dots for a metadata block.")
    try:
        return tomllib.loads(content)
    except RecursionError as error:
        raise RequestError(
            f"The metadata block opened in line {block.line} of the script is nested too deeply."
        ) from error
    except ValueError as error:  # TOMLDecodeError, and int() for absurd numbers
        reason = str(error)
        place = _TOML_PLACE.search(reason)
        inner = int(place[1]) if place and place[1] else len(block.lines)
        raise RequestError(
            f"Line {block.line + inner} of the script: the metadata block is not valid TOML: "
            f'{_TOML_PLACE.sub("", reason)[:200]}. It should read like: # dependencies = ["requests"]'
        ) from error


def _line_of(block: Block, key: str) -> int:
    """The script's line in which ``key`` is set at the top of the block, or else the opener's."""
    assignment = re.compile(rf"""[ \t]*["']?{re.escape(key)}["']?[ \t]*=""")
    for n, line in enumerate(block.lines, start=1):
        if assignment.match(line):
            return block.line + n
    return block.line


def _check_requires(value: object, line: int) -> None:
    example = 'such as ">=3.13"'
    if not isinstance(value, str):
        raise RequestError(f"Line {line} of the script: 'requires-python' must be a text {example}.")
    try:
        conditions = len(SpecifierSet(value))
    except InvalidSpecifier as error:
        raise RequestError(
            f"Line {line} of the script: 'requires-python' is not a version specifier ({value[:80]!r}); "
            f"write one {example}."
        ) from error
    if conditions > MAX_CONDITIONS:
        raise RequestError(
            f"Line {line} of the script: 'requires-python' has {conditions} conditions; at most {MAX_CONDITIONS} are "
            "accepted."
        )


def _judge_unknown(block: Block, key: str, problems: Problems, notes: list[str]) -> None:
    """A slip of the pen must not cost a script its dependencies; other keys may be of a later standard."""
    line = _line_of(block, key)
    plain = key.lower().replace("_", "-")
    meant = difflib.get_close_matches(plain, ["dependencies", "requires-python"], n=1, cutoff=0.75)
    if meant:
        problems.add(f"Line {line} of the script: unknown key {key[:80]!r}; write '{meant[0]}'.")
    else:
        notes.append(f"The key {key[:80]!r} in line {line} of the script's metadata block was ignored.")


def _judge_tool(block: Block, tool: object, problems: Problems, notes: list[str]) -> None:
    uv = tool.get("uv") if isinstance(tool, dict) else None
    if not isinstance(uv, dict):
        return
    if refused := sorted(uv.keys() & REFUSED_UV_KEYS):
        problems.add(
            f"The metadata block opened in line {block.line} of the script sets {_listed(refused)} under "
            "[tool.uv]; where packages come from is set in the server, not in a script. Remove it, or name "
            "the package's address in a dependency: name @ https://..."
        )
    if ignored := sorted(uv.keys() - REFUSED_UV_KEYS):
        notes.append(f"[tool.uv] in the script's metadata block was ignored: {_listed(ignored)}.")


def _listed(keys: list[str]) -> str:
    return ", ".join(repr(key[:40]) for key in keys[:5])

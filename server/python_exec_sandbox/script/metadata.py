"""What a script says of itself in its inline metadata (PEP 723)."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.script.blocks import Block, find_blocks
from python_exec_sandbox.script.problems import Problems
from python_exec_sandbox.script.uv_block import UvBlock, read_uv_block

MAX_BLOCK_CHARACTERS = 64 * 1024
"""Twice what requirements may have in all; keeps hostile TOML from costing time."""

MAX_DOTS = 100
"""Dots outside strings in one line of a block; the TOML reader's time grows with the square of a key's parts."""

MAX_CONDITIONS = 64
"""Whether conditions can hold together takes a time that grows with the square of their number."""

MAX_KEYS = 100
"""Keys of a block; each unknown one is compared with those that may be meant."""

_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'")
_STRING_OR_COMMENT = re.compile(rf"{_STRING.pattern}|#.*+")

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The contents of the one ``script`` block. ``line`` is where its dependencies begin in the script,
    or where the block opens; 0 without a block. ``lines`` are those of each dependency. ``notes`` are
    sentences about what was ignored. ``exclude_newer`` and ``sources`` (addresses by canonical names) are what
    is honoured of ``[tool.uv]``."""

    dependencies: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    requires_python: str | None = None
    line: int = 0
    notes: tuple[str, ...] = ()
    exclude_newer: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


def read_metadata(text: str, problems: Problems) -> Metadata:
    """The metadata of the script ``text`` (line feeds only), empty if it has none.

    A block that is malformed or doubled, keys of the wrong kind: each is added to ``problems`` with its
    line in the script, and what could be read besides is returned.
    """
    found = find_blocks(text)
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
            metadata = _interpret(blocks[0], problems)
    return metadata


def _interpret(block: Block, problems: Problems) -> Metadata:
    table = _parse(block)
    if len(table) > MAX_KEYS:
        raise RequestError(
            f"The metadata block opened in line {block.line} of the script has {len(table):,} keys; at most "
            f"{MAX_KEYS} are accepted."
        )
    notes: list[str] = []
    dependencies = table.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(one, str) for one in dependencies):
        problems.add(
            f"Line {_line_of(block, 'dependencies')} of the script: 'dependencies' must be a list of texts, "
            'such as ["requests>=2", "rich"].'
        )
        dependencies = []
    lines = _lines_of_items(block, dependencies)
    for text, line in zip(dependencies, lines, strict=True):
        if not text.strip():
            problems.add(f"Line {line} of the script: a dependency is empty; remove it or name a package.")
    requires = None
    if "requires-python" in table:
        with problems.collecting():
            requires = _checked(table["requires-python"], _line_of(block, "requires-python"))
    for key in table:
        if key not in {"dependencies", "requires-python", "tool"}:
            _judge_unknown(block, key, problems, notes)
    uv = _judge_tool(block, table.get("tool", {}), problems)
    return Metadata(
        dependencies=tuple(dependencies),
        lines=lines,
        requires_python=requires,
        line=_line_of(block, "dependencies"),
        notes=(*notes, *uv.notes),
        exclude_newer=uv.exclude_newer,
        sources=uv.sources,
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
        if second := block.line_of_inner():
            raise RequestError(
                f"The metadata block opened in line {block.line} of the script goes on over line {second}, which "
                "opens another one; only one is allowed. Put all dependencies into one block."
            ) from error
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


def _lines_of_items(block: Block, items: list[str]) -> tuple[int, ...]:
    """The script's line of each of the ``dependencies``; the TOML reader doesn't tell.

    The first strings after the key are theirs, if they read the same; else all get the line of the key.
    """
    start = _line_of(block, "dependencies")
    index = start - block.line - 1
    found: list[tuple[str, int]] = []
    for n, text in enumerate(block.lines[index:] if index >= 0 else (), start=start):
        if len(found) >= len(items):
            break
        written = text.partition("=")[2] if n == start else text
        found += [(one[1:-1], n) for one in _STRING_OR_COMMENT.findall(written) if one[0] != "#"]
    if [text for text, _ in found[: len(items)]] == items:
        return tuple(line for _, line in found[: len(items)])
    return (start,) * len(items)


def _checked(value: object, line: int) -> str:
    """``value`` as what ``requires-python`` must be."""
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
    return value


def _judge_unknown(block: Block, key: str, problems: Problems, notes: list[str]) -> None:
    """A slip of the pen must not cost a script its dependencies; other keys may be of a later standard."""
    line = _line_of(block, key)
    plain = key.lower().replace("_", "-")
    meant = difflib.get_close_matches(plain, ["dependencies", "requires-python"], n=1, cutoff=0.75)
    if meant:
        problems.add(f"Line {line} of the script: unknown key {key[:80]!r}; write '{meant[0]}'.")
    else:
        notes.append(f"The key {key[:80]!r} in line {line} of the script's metadata block was ignored.")


def _judge_tool(block: Block, tool: object, problems: Problems) -> UvBlock:
    uv = tool.get("uv", {}) if isinstance(tool, dict) else None
    where = f"The metadata block opened in line {block.line} of the script"
    if not isinstance(uv, dict):
        problems.add(
            f"{where}: '{'tool' if uv is None else 'tool.uv'}' must be a table; remove it, nothing of it is needed here."
        )
        return UvBlock()
    return read_uv_block(uv, where, problems)

"""Lists of texts in the shapes that clients really send."""

import ast
import json
import shlex

_OPENING = "[("
_CLOSING = "])"
# A piece that starts so is the rest of a version specifier: "six>=1,<2" is one requirement.
_CONTINUES = ("<", ">", "=", "!", "~")


def requirement_list(value: object) -> object:
    """A list from a list, its JSON text, or bare names separated by commas or line ends.

    Anything else is returned as it is, for the caller's type check to refuse.
    """
    if not isinstance(value, str):
        return value
    written = _written_list(value)
    return _split_requirements(value) if written is None else written


def argument_list(value: object) -> object:
    """A list from a list, its JSON text, or words as a shell would split them; numbers become text.

    Raises:
        ValueError: a quotation mark is left open.
    """
    if isinstance(value, str):
        written = _written_list(value)
        value = shlex.split(value) if written is None else written
    if not isinstance(value, list):
        return value
    return [
        str(item) if isinstance(item, int | float) and not isinstance(item, bool) else item for item in value
    ]


def _written_list(text: str) -> list[object] | None:
    """The list that ``text`` spells in JSON or as a Python literal, or ``None``."""
    stripped = text.strip()
    if not (stripped.startswith("[") and stripped.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(stripped)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, list):
            return value
    return None


def _split_requirements(text: str) -> list[str]:
    """``text`` cut at commas and line ends outside brackets; pieces of one specifier stay together."""
    pieces: list[str] = []
    depth = 0
    current = ""
    for character in text + ",":
        depth += (character in _OPENING) - (character in _CLOSING)
        if character not in ",\n" or depth > 0:
            current += character
            continue
        piece = current.strip()
        current = ""
        if piece.startswith(_CONTINUES) and pieces:
            pieces[-1] += f",{piece}"
        elif piece:
            pieces.append(piece)
    if current.strip(", \n"):  # a bracket was never closed: hand it on, its parser says what is wrong
        pieces.append(current.strip(", \n"))
    return pieces

"""Compiles the script that stands on stdin, and writes what the compiler said to stdout as a line of JSON.

Nothing of the script is executed. It runs under the Python that the script is for. What a hostile script
does to the compiler (depth, size, time, memory) is an answer here, or the end of this process only.
"""

import ast
import json
import sys
import warnings

FILE = "<script>"
"""No file has this name: the compiler looks one up to quote a line, and would find this program's own."""

MOST_WARNINGS = 20
MOST_IMPORTS = 200
LONGEST_TEXT = 300

LARGEST_LOOKED_THROUGH = 256 * 1024
"""A tree of the syntax takes a hundred times a script's size; a larger one goes without hints."""

CATCHES_MISSING = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def check(data: bytes) -> dict[str, object]:
    """``error`` is what the compiler refused, or ``None``; ``warnings`` what it doubts; ``imports`` the modules
    that the script needs and that are no part of this Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = compile_error(data)
    answer: dict[str, object] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "error": error,
        "warnings": doubts(caught),
        "imports": [],
    }
    if error is None and len(data) <= LARGEST_LOOKED_THROUGH:
        answer["imports"] = foreign_imports(data)
    return answer


def compile_error(data: bytes) -> dict[str, object] | None:
    try:
        compile(data, FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        return {
            "kind": type(error).__name__,
            "message": cut(error.msg or str(error)),
            "line": error.lineno,
            "column": error.offset,
            "text": cut((error.text or line_of(data, error.lineno)).rstrip("\r\n")),
        }
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        return {
            "kind": type(error).__name__,
            "message": cut(str(error)),
            "line": None,
            "column": None,
            "text": "",
        }
    return None


def line_of(data: bytes, number: "int | None") -> str:
    """The line that the compiler names but doesn't quote."""
    lines = data.split(b"\n")
    return lines[number - 1].decode("utf-8", "replace") if number and number <= len(lines) else ""


def doubts(caught: "list[warnings.WarningMessage]") -> list[dict[str, object]]:
    """Each warning once: the compiler says some of them twice."""
    found: list[dict[str, object]] = []
    for one in sorted(caught, key=lambda one: one.lineno):
        doubt: dict[str, object] = {
            "kind": one.category.__name__,
            "message": cut(str(one.message)),
            "line": one.lineno,
        }
        if doubt not in found:
            found.append(doubt)
        if len(found) == MOST_WARNINGS:
            break
    return found


def foreign_imports(data: bytes) -> list[dict[str, object]]:
    """The first line of each module that is imported, isn't this Python's own, and isn't made optional by a
    ``try`` around it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data, FILE)
        optional = optional_imports(tree)
        found: dict[str, int] = {}
        for node in ast.walk(tree):
            for module in modules(node):
                if module not in sys.stdlib_module_names and id(node) not in optional:
                    found[module] = min(found.get(module, sys.maxsize), getattr(node, "lineno", 0))
    except (RecursionError, MemoryError, ValueError, SyntaxError):
        return []  # it compiles; only the hints are left out
    first = sorted(found.items(), key=lambda item: item[1])[:MOST_IMPORTS]
    return [{"module": cut(module), "line": line} for module, line in first]


def modules(node: ast.AST) -> list[str]:
    """The top names of what ``node`` imports."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module.partition(".")[0]]
    return []


def optional_imports(tree: ast.AST) -> set[int]:
    """The imports that a script can do without."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.If) and guards(node):
            found.update(id(inner) for statement in node.body for inner in ast.walk(statement))
    return found


def guards(node: "ast.Try | ast.If") -> bool:
    """Whether the first body of ``node`` may fail to import, or is for type checkers alone."""
    if isinstance(node, ast.Try):
        return any(map(catches_missing, node.handlers))
    test = node.test
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return bool(name == "TYPE_CHECKING")


def catches_missing(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(one, ast.Name) and one.id in CATCHES_MISSING for one in named)


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(check(sys.stdin.buffer.read())) + "\n")

"""The arguments of ``execute_python``: their schema, and what clients make of them.

Clients send ``null`` and ``""`` for "nothing", lists as text, numbers as text, and names that don't exist.
What can be understood is; the rest gets one short error that names the argument and the accepted form.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from python_exec_sandbox.api.lists import argument_list, requirement_list
from python_exec_sandbox.errors import RequestError
from python_exec_sandbox.setting_values import Network, parse_seconds
from python_exec_sandbox.settings import Settings

ALIASES = {
    "code": "script",
    "source": "script",
    "timeout": "timeout_seconds",
    "packages": "dependencies",
    "requirements": "dependencies",
}
"""Names that models use for an argument; understood without a word."""

MEANT = {
    "argv": "args",
    "arguments": "args",
    "input": "stdin",
    "python": "python_version",
    "version": "python_version",
}
"""Names that are not understood but lead to the right one, beside those that are spelled like it."""

ALIKE = 0.72
"""How alike names must be to suggest one for the other: timeout_ms and timeout are, lang and args aren't."""

ACCEPTED_FORMS = {
    "script": "the Python source as text",
    "dependencies": 'a list of texts such as ["requests", "numpy>=2"]',
    "timeout_seconds": "a number of seconds such as 30",
    "python_version": 'text such as "3.13"',
    "args": 'a list of texts such as ["--verbose", "in.txt"]',
    "stdin": "text",
}


def _version_text(value: object) -> object:
    """A version sent as a number, as text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class ExecuteArguments(BaseModel):
    """What a call of ``execute_python`` may carry, checked for its shape only; ranges are the executor's.

    ``timeout_seconds`` and ``python_version`` are ``None`` where the call leaves them to the settings.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    script: StrictStr
    dependencies: Annotated[tuple[StrictStr, ...], BeforeValidator(requirement_list)] = ()
    timeout_seconds: Annotated[float | None, BeforeValidator(parse_seconds)] = None
    python_version: Annotated[StrictStr | None, BeforeValidator(_version_text)] = None
    args: Annotated[tuple[StrictStr, ...], BeforeValidator(argument_list)] = ()
    stdin: StrictStr = ""


MAX_NOTED = 5
"""Unknown arguments that an answer names; a caller who sends more has another problem."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call that can be carried out; ``notes`` are sentences that belong into its answer."""

    arguments: ExecuteArguments
    notes: tuple[str, ...] = ()


def parse_call(raw: Mapping[str, Any]) -> ParsedCall:
    """The meaning of the arguments ``raw`` as a client sent them.

    Raises:
        RequestError: arguments are missing or have a wrong shape; names each with its accepted form.
    """
    known: dict[str, Any] = {}
    sources: dict[str, str] = {}
    notes: list[str] = []
    # An argument's own name goes before others for it; those go by their order.
    unknown = [name for name in raw if ALIASES.get(name, name) not in ExecuteArguments.model_fields]
    notes += map(_unknown_note, unknown[:MAX_NOTED])
    if len(unknown) > MAX_NOTED:
        notes.append(f"Ignored {len(unknown) - MAX_NOTED:,} more unknown arguments.")
    for name in sorted(raw.keys() - unknown, key=lambda name: (name in ALIASES, list(raw).index(name))):
        field = ALIASES.get(name, name)
        if _means_default(field, raw[name]):
            continue
        if field in known:
            notes.append(f"{sources[field]} and {name} mean the same; {sources[field]} was used.")
        else:
            known[field], sources[field] = raw[name], name
    if "script" not in known:
        raise RequestError(
            " ".join((f"script: missing or empty. Accepted: {ACCEPTED_FORMS['script']}.", *notes))
        )
    try:
        arguments = ExecuteArguments.model_validate(known)
    except ValidationError as error:
        raise RequestError(" ".join((_worded(error), *notes))) from None
    return ParsedCall(arguments, tuple(notes))


def input_schema(settings: Settings) -> dict[str, Any]:
    """The schema that ``tools/list`` shows: one flat object, defaults and ranges in words.

    Clients drop ``default`` and bounds from schemas, so that the descriptions carry them.
    """
    texts = {"type": "array", "items": {"type": "string"}}
    packages = (
        "Not available: the server runs with --network none, so no packages can be installed."
        if settings.network is Network.NONE
        else 'Packages to install first, as PEP 508 requirements such as ["requests", "numpy>=2"]. A "# /// script"'
        " block in the script works too."
    )
    return {
        "type": "object",
        "properties": {
            "script": {"type": "string", "description": "Python source to run, as in a file of its own."},
            "dependencies": texts | {"description": f"{packages} Default: none.", "default": []},
            "timeout_seconds": {
                "type": "number",
                "description": f"Longest run in seconds, at least 0.1, at most {settings.max_timeout:g}; installing"
                f" does not count. Default: {settings.default_timeout:g}.",
                "default": settings.default_timeout,
            },
            "python_version": {
                "type": "string",
                "description": 'Python to run with, such as "3.14". Default: what the script\'s block asks for,'
                f" else {settings.python_version}.",
            },
            "args": texts
            | {"description": "Command line arguments: sys.argv[1:]. Default: none.", "default": []},
            "stdin": {
                "type": "string",
                "description": "Text the script reads from standard input. Default: empty.",
                "default": "",
            },
        },
        "required": ["script"],
    }


def _means_default(field: str, value: object) -> bool:
    """``null`` and empty text stand for a left-out argument; blank lines are a fine input, though."""
    return value is None or (isinstance(value, str) and not (value if field == "stdin" else value.strip()))


def _unknown_note(name: str) -> str:
    shown = ascii(name[:60])
    fields = list(ExecuteArguments.model_fields)
    plain = name[:60].lower().replace("-", "_")
    close = (
        [plain]
        if plain in MEANT
        else difflib.get_close_matches(plain, [*fields, *ALIASES], n=1, cutoff=ALIKE)
    )
    if close:
        return f"Ignored unknown argument {shown}; did you mean {(ALIASES | MEANT).get(close[0], close[0])}?"
    return f"Ignored unknown argument {shown}; known are {', '.join(fields)}."


def _worded(error: ValidationError) -> str:
    """One sentence for each argument that is wrong, only its first problem."""
    first: dict[str, ErrorDetails] = {}
    for detail in error.errors():
        first.setdefault(str(detail["loc"][0]), detail)
    return " ".join(_problem(name, detail) for name, detail in first.items())


def _problem(name: str, detail: ErrorDetails) -> str:
    place = f"{name}[{detail['loc'][1]}]" if len(detail["loc"]) > 1 else name
    if detail["type"] == "value_error":
        return f"{place}: {detail.get('ctx', {}).get('error', detail['msg'])}."
    return f"{place}: {_json_word(detail['input'])} is not accepted. Accepted: {ACCEPTED_FORMS[name]}."


def _json_word(value: object) -> str:
    """What a client calls the kind of ``value``."""
    match value:
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"

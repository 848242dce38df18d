"""What clients make of a tool's arguments, and what was meant.

Clients send ``null`` and ``""`` for "nothing", lists as text, numbers as text, and names that don't exist.
What can be understood is; the rest gets one short error that names the argument and the accepted form.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from python_exec_sandbox.errors import RequestError

ALIKE = 0.72
"""How alike names must be to suggest one for the other: timeout_ms and timeout are, lang and args aren't."""

MAX_NOTED = 5
"""Unknown arguments that an answer names; a caller who sends more has another problem."""


class Arguments(BaseModel):
    """Base of each tool's arguments, checked for their shape only; ranges belong to whoever uses them."""

    model_config = ConfigDict(frozen=True, extra="ignore")


A = TypeVar("A", bound=Arguments)


@dataclass(frozen=True, slots=True)
class ParsedCall(Generic[A]):
    """A call that can be carried out; ``notes`` are sentences that belong into its answer."""

    arguments: A
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape(Generic[A]):
    """The arguments of one tool.

    ``forms`` says of each in words what is accepted. ``aliases`` are names understood without a word;
    ``meant`` are names that are not understood but lead to the right one, beside those spelled like it.
    In ``kept_blank`` are arguments for which blank text is a value of its own.
    """

    model: type[A]
    forms: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    meant: Mapping[str, str] = field(default_factory=dict)
    kept_blank: frozenset[str] = frozenset()

    def parse(self, raw: Mapping[str, Any]) -> ParsedCall[A]:
        """The meaning of the arguments ``raw`` as a client sent them.

        Raises:
            RequestError: arguments are missing or have a wrong shape; names each with its accepted form.
        """
        unknown = [name for name in raw if self.aliases.get(name, name) not in self.model.model_fields]
        notes = [self._unknown_note(name) for name in unknown[:MAX_NOTED]]
        if len(unknown) > MAX_NOTED:
            notes.append(f"Ignored {len(unknown) - MAX_NOTED:,} more unknown arguments.")
        ignored = frozenset(unknown)
        known = self._known({name: value for name, value in raw.items() if name not in ignored}, notes)
        for name, info in self.model.model_fields.items():
            if info.is_required() and name not in known:
                words = f"{name}: missing or empty. Accepted: {self.forms[name]}."
                raise RequestError(" ".join((words, *notes)))
        try:
            arguments = self.model.model_validate(known)
        except ValidationError as error:
            raise RequestError(" ".join((self._worded(error), *notes))) from None
        return ParsedCall(arguments, tuple(notes))

    def _known(self, raw: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        """What is left by field. An argument's own name goes before others for it; those go by their order."""
        known: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name in sorted(raw, key=lambda name: (name in self.aliases, list(raw).index(name))):
            field_name = self.aliases.get(name, name)
            if self._means_default(field_name, raw[name]):
                continue
            if field_name in known:
                notes.append(
                    f"{sources[field_name]} and {name} mean the same; {sources[field_name]} was used."
                )
            else:
                known[field_name], sources[field_name] = raw[name], name
        return known

    def _means_default(self, name: str, value: object) -> bool:
        """``null`` and empty text stand for a left-out argument."""
        if isinstance(value, str):
            return not (value if name in self.kept_blank else value.strip())
        return value is None

    def _unknown_note(self, name: str) -> str:
        shown = ascii(name[:60])
        fields = list(self.model.model_fields)
        if not fields:
            return f"Ignored unknown argument {shown}; this tool takes none."
        plain = name[:60].lower().replace("-", "_")
        close = (
            [plain]
            if plain in self.meant
            else difflib.get_close_matches(plain, [*fields, *self.aliases], n=1, cutoff=ALIKE)
        )
        if close:
            meant = {**self.aliases, **self.meant}.get(close[0], close[0])
            return f"Ignored unknown argument {shown}; did you mean {meant}?"
        return f"Ignored unknown argument {shown}; known are {', '.join(fields)}."

    def _worded(self, error: ValidationError) -> str:
        """One sentence for each argument that is wrong, only its first problem."""
        first: dict[str, ErrorDetails] = {}
        for detail in error.errors():
            first.setdefault(str(detail["loc"][0]), detail)
        return " ".join(self._problem(name, detail) for name, detail in first.items())

    def _problem(self, name: str, detail: ErrorDetails) -> str:
        place = f"{name}[{detail['loc'][1]}]" if len(detail["loc"]) > 1 else name
        if detail["type"] == "value_error":
            return f"{place}: {detail.get('ctx', {}).get('error', detail['msg'])}."
        return f"{place}: {_json_word(detail['input'])} is not accepted. Accepted: {self.forms[name]}."


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

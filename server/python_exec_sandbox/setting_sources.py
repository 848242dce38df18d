"""Reads the settings from where they are written, and words what is wrong with them."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.settings import ENV_PREFIX, Settings

CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"

# A settings file is some dozens of lines; more than this is the wrong file.
LARGEST_FILE_BYTES = 1024 * 1024

LONGEST_SHOWN_CHARACTERS = 60


# What a person wrote into an address by mistake must not come out in a message.
_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#]+@")


@dataclass(frozen=True, slots=True)
class _Origins:
    """Which settings were written where, for messages."""

    flags: frozenset[str]
    variables: frozenset[str]
    file: frozenset[str]
    path: Path | None

    def of(self, name: str) -> str:
        if name in self.flags:
            return f"--{_dashed(name)}"
        if name in self.variables:
            return f"{ENV_PREFIX}{name.upper()}"
        if name in self.file:
            return f"{self.path}: {_dashed(name)} ="
        return f"--{_dashed(name)}"

    def is_from_file(self, name: str) -> bool:
        return name in self.file - self.flags - self.variables


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """The settings from ``flags`` (by field name), the environment, and the file ``config``.

    Without ``config`` the file named by ``PYTHON_EXEC_SANDBOX_CONFIG`` is read, if any.

    Raises:
        ConfigurationError: a value is wrong, a name is unknown, or the file can't be read; one line.
    """
    named = config or (Path(value) if (value := os.environ.get(CONFIG_VARIABLE)) else None)
    from_file = _read_file(named) if named else {}
    variables = _variables()
    origins = _Origins(frozenset(flags), frozenset(variables), frozenset(from_file), named)

    class Sourced(Settings):
        """The settings with this call's file behind the environment."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=from_file)

    chosen: type[Settings] = Sourced if from_file else Settings
    try:
        return chosen(**flags)
    except ValidationError as error:
        raise ConfigurationError(_worded(error, origins)) from None


def _variables() -> list[str]:
    """Names of the settings given in the environment."""
    given = [
        name.upper().removeprefix(ENV_PREFIX).lower()
        for name, value in os.environ.items()
        if value and name.upper().startswith(ENV_PREFIX) and name.upper() != CONFIG_VARIABLE
    ]
    for name in given:
        if name not in Settings.model_fields:
            known = [f"{ENV_PREFIX}{field.upper()}" for field in Settings.model_fields]
            raise ConfigurationError(_unknown(f"{ENV_PREFIX}{name.upper()}", "variable", known))
    return given


def _read_file(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, by field name; ``pool-size`` and ``pool_size`` are the same."""
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ConfigurationError(f"--config {path}: larger than 1 MiB, so it is no settings file")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--config {path}: can't be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config {path}: not a TOML file ({error})") from None
    values = {name.replace("-", "_"): value for name, value in table.items()}
    for name in table:
        if name.replace("-", "_") not in Settings.model_fields:
            known = [_dashed(field) for field in Settings.model_fields]
            raise ConfigurationError(f"--config {path}: {_unknown(name, 'setting', known)}")
    return values


def _unknown(name: str, kind: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"unknown {kind} {name}" + (f"; did you mean {close[0]}?" if close else "; see --help for all")


def _worded(error: ValidationError, origins: _Origins) -> str:
    """All problems in one line; those that only follow from another are left out."""
    problems = [
        _problem(detail, origins)
        for detail in error.errors()
        if detail["type"] != "default_factory_not_called"
    ]
    return "; ".join(problems)


def _problem(detail: ErrorDetails, origins: _Origins) -> str:
    text = _reason(detail)
    if not detail["loc"]:
        return text
    name = str(detail["loc"][0])
    return f"{origins.of(name)} {_shown(detail['input'], quoted=origins.is_from_file(name))} {text}"


def _shown(value: object, *, quoted: bool) -> str:
    """``value`` on one line, in quotes where a file has texts in quotes."""
    text = _CREDENTIALS.sub("****@", str(value))
    if not text.isprintable() or len(text) > LONGEST_SHOWN_CHARACTERS:
        return repr(text)[:LONGEST_SHOWN_CHARACTERS]
    if isinstance(value, bool):
        return text.lower()
    return f'"{text}"' if quoted and isinstance(value, str) else text


def _reason(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(context["error"])
        case "byte_size" | "byte_size_unit":
            return "is not a size (accepted: 512MiB, 1GB, 65536)"
        case "enum":
            return f"must be one of {context['expected']}"
        case "int_parsing" | "int_type" | "int_from_float":
            return "is not a whole number"
        case "float_parsing" | "float_type":
            return "is not a number"
        case "bool_parsing" | "bool_type":
            return "is neither true nor false"
        case "string_type":
            return 'is not text; write it in quotes, as in "3.13"'
        case _:
            return f"is not accepted: {detail['msg']}"


def _dashed(name: str) -> str:
    return name.replace("_", "-")

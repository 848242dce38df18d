"""What ``[tool.uv]`` in a script's block may say: a policy, and no text of it ever reaches uv.

=====================================  =================================================================
key                                    what becomes of it
=====================================  =================================================================
``exclude-newer``                      honoured: together with the server's own, the older one counts
``sources`` with a ``url``             honoured: the dependency is taken from that address
``sources`` with anything else         refused: there is no git, no file of this machine, no other index
``index`` and its kin                  refused: indexes are the server's, and so are their credentials
everything else                        ignored, and noted
=====================================  =================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from packaging.utils import canonicalize_name

from python_exec_sandbox.script import cutoffs
from python_exec_sandbox.script.problems import Problems

INDEX_KEYS = frozenset({"index", "index-url", "default-index", "extra-index-url", "find-links", "no-index"})

HONOURED = frozenset({"exclude-newer", "sources"})

MAX_SOURCES = 100

_WHY_NOT = {
    "git": 'needs git, which is not in the sandbox; name an archive instead: { url = "https://...zip" }',
    "path": "is a path; a sandbox has no files of this machine",
    "workspace": "is a workspace; a sandbox has no files of this machine",
    "index": "names an index; indexes are settings of the server (--extra-index-url)",
}


@dataclass(frozen=True, slots=True)
class UvBlock:
    """What is honoured: ``sources`` are addresses by canonical names."""

    exclude_newer: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_uv_block(table: Mapping[str, object], where: str, problems: Problems) -> UvBlock:
    """The part of ``table`` that is honoured; what is refused is added to ``problems``, beginning with ``where``."""
    if refused := sorted(table.keys() & INDEX_KEYS):
        problems.add(
            f"{where} sets {listed(refused)} under [tool.uv]; indexes are settings of the server (--index-url,"
            " --extra-index-url), not of a script. Remove it, or name the package's address in a dependency:"
            " name @ https://..."
        )
    notes = []
    if ignored := [key for key in table if key not in INDEX_KEYS | HONOURED]:
        notes.append(f"[tool.uv] in the script's metadata block was ignored: {listed(ignored)}.")
    cutoff = _cutoff(table, where, problems)
    return UvBlock(cutoff, _sources(table.get("sources", {}), where, problems), tuple(notes))


def _cutoff(table: Mapping[str, object], where: str, problems: Problems) -> str:
    if "exclude-newer" not in table:
        return ""
    given = table["exclude-newer"]
    value = (given.isoformat() if isinstance(given, date) else str(given))[:80]  # TOML has dates, too
    if cutoffs.moment(value, datetime.now(UTC)) is None:
        problems.add(
            f"{where} sets exclude-newer to {value!r}, which is no time; accepted: {cutoffs.ACCEPTED}."
        )
        return ""
    return value


def _sources(table: object, where: str, problems: Problems) -> dict[str, str]:
    if not isinstance(table, dict) or len(table) > MAX_SOURCES:
        problems.add(f"{where}: 'tool.uv.sources' must be a table of at most {MAX_SOURCES} entries.")
        return {}
    found = {}
    for name, source in table.items():
        if isinstance(source, dict) and source.keys() == {"url"} and isinstance(source["url"], str):
            found[str(canonicalize_name(name))] = source["url"]
            continue
        kind = next((key for key in _WHY_NOT if isinstance(source, dict) and key in source), "")
        why = _WHY_NOT.get(kind, 'must be of the form { url = "https://..." } and nothing more')
        problems.add(f"{where}: the source of {name[:80]!r} {why}.")
    return found


def listed(keys: list[str]) -> str:
    """The first few, in quotes."""
    return ", ".join(repr(key[:40]) for key in keys[:5])

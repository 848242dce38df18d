"""What the engine and the image are, in words for a person. Knows the engine's answers, not the SDK."""

from collections.abc import Mapping
from typing import Any

from python_exec_sandbox.drivers.docker.discovery import Candidate
from python_exec_sandbox.drivers.docker.facts import AboutEngine, Labelled
from python_exec_sandbox.drivers.docker.failure import quote
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.model.limits import MIB

_MOST_ITEMS = 10

_SHORT_ID = 12


def about_engine(version: Mapping[str, Any], info: Mapping[str, Any], api: object) -> AboutEngine:
    """From the engine's answers to ``/version`` and ``/info``, whatever is in them."""

    def text(facts: Mapping[str, Any], name: str) -> str:
        value = facts.get(name)
        return quote(str(value)) if value else ""

    def number(name: str) -> int:
        value = info.get(name)
        return value if isinstance(value, int) else 0

    def items(name: str) -> tuple[str, ...]:
        found = info.get(name)
        return tuple(quote(str(item)) for item in found[:_MOST_ITEMS]) if isinstance(found, list) else ()

    own_name = version.get("Platform")
    return AboutEngine(
        name=(text(own_name, "Name") if isinstance(own_name, Mapping) else "") or "container engine",
        version=text(version, "Version"),
        api=quote(str(api)),
        newest_api=text(version, "ApiVersion"),
        system=text(info, "OperatingSystem"),
        kernel=text(info, "KernelVersion"),
        architecture=text(info, "Architecture"),
        processors=number("NCPU"),
        memory_bytes=number("MemTotal"),
        control_groups=text(info, "CgroupVersion"),
        security=items("SecurityOptions"),
        warnings=items("Warnings"),
    )


def driver_facts(
    candidate: Candidate, about: AboutEngine, reference: str, image: Labelled | None
) -> DriverFacts:
    """The lines to show, and what is still to be made."""
    engine = (
        f"{about.name} {about.version}, API {about.api} (its newest is {about.newest_api}), at {candidate.address} "
        f"({candidate.origin})"
    )
    machine = [
        *(part for part in (about.system, about.kernel, about.architecture) if part),
        *([f"{about.processors} processors"] if about.processors else []),
        *([f"{about.memory_bytes // MIB:,} MiB memory"] if about.memory_bytes else []),
        *([f"control groups v{about.control_groups}"] if about.control_groups else []),
    ]
    lines = [("engine", engine), ("engine's machine", ", ".join(machine))]
    if about.security:
        lines.append(("engine's security", ", ".join(about.security)))
    lines += [("engine's warning", warning.removeprefix("WARNING: ")) for warning in about.warnings]
    if image is None:
        return DriverFacts((*lines, ("image", f"{reference}: not there yet")), None, f"the image {reference}")
    lines.append(("image", f"{reference} ({image.id.removeprefix('sha256:')[:_SHORT_ID]})"))
    return DriverFacts(tuple(lines), image.id)

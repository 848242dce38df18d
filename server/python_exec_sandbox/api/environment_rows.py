"""An environment as rows for people and models: what it is, whether that is well, and what to do if not. Pure."""

import platform
from collections.abc import Iterable, Iterator, Sequence

from python_exec_sandbox import __version__
from python_exec_sandbox.api.environment import Environment
from python_exec_sandbox.api.inapplicable import inapplicable
from python_exec_sandbox.api.refusals import short_refusal
from python_exec_sandbox.api.row import PAGE_BYTES, Row, Section, State, limit_row, without_home
from python_exec_sandbox.api.unsandboxed_rows import unsandboxed_rows
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.model.limits import RUNNER_RESERVE_BYTES
from python_exec_sandbox.pool.stats import PoolPhase, PoolStats
from python_exec_sandbox.run.measuring import Measured
from python_exec_sandbox.run.units import show_bytes, show_seconds
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings

ENVIRONMENT_FOLDER = "/env"

_CAPABILITY_BITS = {5: "KILL", 6: "SETGID", 7: "SETUID"}
"""Those that a sandbox's first process may have (capabilities(7)); a script may use none of them."""

_SECCOMP_FILTER = 2


def sections(settings: Settings, found: Environment) -> tuple[Section, ...]:
    """All there is to say, most important first; no path under the person's home is in it."""
    parts = (
        ("Scripts", _scripts(settings, found)),
        ("Server", _server(settings)),
        ("Engine", _engine(found)),
        *_measured(settings, found.measured, found.facts),
        ("Limits kept by the server", _kept_limits(settings)),
        ("Pool, now and since the start", _pool(found.stats)),
        ("Settings", _settings(settings)),
    )
    made = (Section(title, tuple(map(_without_home, rows))) for title, rows in parts)
    return tuple(section for section in made if section.rows)


def _measured(
    settings: Settings, measured: Measured | None, facts: DriverFacts
) -> list[tuple[str, Iterator[Row]]]:
    if measured is None:
        return []
    if measured.unsandboxed:
        return [("Where scripts run, measured there", unsandboxed_rows(settings, measured))]
    return [
        ("Isolation, measured in a sandbox", _isolation(settings, measured)),
        ("Limits, measured in a sandbox", _limits(settings, measured, facts)),
    ]


def _without_home(row: Row) -> Row:
    return Row(row.name, without_home(row.value), row.state, without_home(row.fix))


def _default_python(wanted: str, at_hand: Sequence[str]) -> str:
    if not at_hand or wanted in at_hand:
        return f"{wanted} unless asked otherwise"
    return f"{at_hand[-1]} unless asked otherwise, as {wanted} is missing"


def _scripts(settings: Settings, found: Environment) -> Iterator[Row]:
    if found.failure is not None:
        yield Row("can run", "no", State.BAD, short_refusal(found.failure))
    elif found.measured is None:
        yield Row("can run", found.unmeasured or "not tried", State.WARNING, "Ask again when it is done.")
    elif found.measured.unsandboxed:
        yield Row("can run", "yes, but NOT sandboxed", State.WARNING, found.measured.unsandboxed)
    else:
        earlier = ", measured earlier in a sandbox of the same image" if found.remembered else ""
        yield Row("can run", f"yes: one ran in a sandbox{earlier}", State.GOOD)
    measured = found.measured.pythons if found.measured else ()
    full = f" ({', '.join(measured)})" if measured else ""
    default = _default_python(settings.python_version, found.pythons)
    at_hand = ", ".join(found.pythons) or "those that uv has"
    yield Row("Pythons", f"{at_hand}{full}; {default}")
    if found.measured is not None:
        uv = found.measured.uv
        where = f" at {found.measured.uv_path}" if found.measured.uv_path else ""
        yield Row(
            "uv",
            f"{uv or 'version not told'}{where}; UV in scripts is {found.measured.uv_path or 'not set'}",
            State.GOOD if uv else State.WARNING,
            "" if uv else "uv did not answer there: use the image that belongs to this version.",
        )


def _server(settings: Settings) -> Iterator[Row]:
    yield Row("version", f"{__version__} on Python {platform.python_version()}")
    yield Row("platform", f"{platform.system()} {platform.release()} {platform.machine()}")
    if settings.is_unsandboxed:
        yield Row(
            "backend",
            "none: scripts are NOT sandboxed, and have all rights of this user",
            State.WARNING,
            "Leave out --sandbox-backend none to have them in containers.",
        )
        return
    yield Row("backend", str(settings.sandbox_backend))
    if settings.allow_unsandboxed:
        yield Row(
            "without a sandbox", "scripts run on the machine itself then (--allow-unsandboxed)", State.WARNING
        )


def _engine(found: Environment) -> Iterator[Row]:
    if found.engine_failure is not None:
        yield Row("engine", "none could be used", State.WARNING, short_refusal(found.engine_failure))
    for name, value in found.facts.lines:
        yield Row(name, value, State.WARNING if name.endswith("warning") else State.PLAIN)


def _isolation(settings: Settings, measured: Measured) -> Iterator[Row]:
    yield _judged(
        "user",
        f"uid {measured.uid}, gid {measured.gid}",
        measured.uid != 0,
        "Scripts run as root: use the image of this version.",
    )
    usable = int(measured.effective_capabilities or "0", 16)
    yield _judged(
        "capabilities",
        _capabilities(measured),
        measured.effective_capabilities is not None and not usable,
        "Scripts must have none: use the image of this version, and an engine that drops them.",
    )
    yield _judged(
        "no new privileges",
        _yes(measured.no_new_privileges),
        measured.no_new_privileges == 1,
        "The engine ignores no-new-privileges: update it, or look at its --runtime.",
    )
    filtered = measured.seccomp == _SECCOMP_FILTER
    yield _judged(
        "system calls (seccomp)",
        "filtered" if filtered else f"not filtered (mode {measured.seccomp})",
        filtered,
        "The engine runs without its default seccomp profile: users and capabilities alone hold the wall.",
    )
    yield _judged(
        "root file system",
        {True: "read-only", False: "writable", None: "not told"}[measured.root_is_read_only],
        measured.root_is_read_only is True,
        "Scripts can write outside of their folders, without the limit of --disk.",
    )
    yield _network(settings, measured)
    if measured.processes_seen is not None:
        yield Row("processes it sees", str(measured.processes_seen))
    yield Row("environment variables", ", ".join(measured.variables) or "none")


def _network(settings: Settings, measured: Measured) -> Row:
    devices = ", ".join(measured.devices) if measured.devices is not None else "not told"
    outer = [device for device in measured.devices or () if device != "lo"]
    if settings.network is not Network.FULL:
        fix = f"--network {settings.network} should leave the loopback alone: look at the engine's --runtime."
        if settings.network is Network.FILTERED:
            devices += "; the server carries connections to public addresses"
        return _judged("network devices", devices, measured.devices is not None and not outer, fix)
    return Row("network devices", f"{devices} (--network {settings.network})")


def _limits(settings: Settings, measured: Measured, facts: DriverFacts) -> Iterator[Row]:
    asked = settings.sandbox_limits()
    group = f"the kernel's {{}} control group (version {measured.control_groups or 'unknown'})"
    yield limit_row("memory", measured.memory_bytes, asked.memory_bytes, group.format("memory"))
    yield limit_row("swap", measured.swap_bytes, 0, "the kernel's swap accounting (swapaccount=1)")
    if facts.hides_cpus and measured.cpus is None:
        yield Row("processors", f"{asked.cpus:g}, kept from outside", State.GOOD)
    else:
        yield limit_row("processors", measured.cpus, asked.cpus, group.format("cpu"))
    processes = asked.processes + facts.own_processes
    yield limit_row("processes and threads", measured.processes, processes, group.format("pids"))
    yield limit_row("open files", measured.open_files, asked.open_files, "the engine's ulimits")
    yield limit_row("core dumps", measured.core_bytes, 0, "the engine's ulimits")
    sizes = {folder.path: folder for folder in measured.folders}
    shares = asked.disk_shares()
    wanted = {path: shares.of(path) for path in ("/work", "/tmp", "/dev/shm", "/home/sandbox")}  # noqa: S108  # inside
    wanted[ENVIRONMENT_FOLDER] = asked.environment_bytes
    for path, size in wanted.items():
        there = sizes.pop(path, None)
        yield limit_row(
            f"folder {path}", there.bytes if there else None, size or 0, "a tmpfs of its own", PAGE_BYTES
        )
    for folder in sizes.values():
        yield Row(
            f"folder {folder.path}",
            f"{show_bytes(folder.bytes)} ({folder.kind}), writable and of no limit of ours",
            State.WARNING,
            "What scripts write there is not bounded by --disk.",
        )


def _kept_limits(settings: Settings) -> Iterator[Row]:
    yield Row("run time", f"{settings.default_timeout:g} s, at most {settings.max_timeout:g} s")
    if settings.can_install:
        yield Row("installation", f"{settings.install_timeout:g} s")
    yield Row(
        "output",
        f"{show_bytes(settings.max_output_bytes)} kept of each stream, {settings.show_chars:,} characters shown,"
        f" the script ended at {show_bytes(settings.output_kill_bytes)}",
    )
    if not settings.is_unsandboxed:
        yield Row("memory for the runner", show_bytes(RUNNER_RESERVE_BYTES))


def _pool(stats: PoolStats | None) -> Iterator[Row]:
    if stats is None:
        return
    fine = stats.phase in {PoolPhase.RUNNING, PoolPhase.ASLEEP}
    yield Row(
        "state",
        str(stats.phase),
        State.GOOD if fine else State.WARNING,
        "" if fine else " ".join((stats.last_error or "").split()),
    )
    yield Row(
        "sandboxes",
        f"{stats.idle} idle, {stats.leased} in use, {stats.creating} being made, {stats.destroying} being removed;"
        f" {stats.waiting} calls waiting",
    )
    mean_wait = stats.wait_ms / stats.granted / 1000 if stats.granted else 0.0
    yield Row(
        "calls served",
        f"{stats.granted}, of them {stats.granted_at_once} at once; waited {show_seconds(mean_wait)} on average",
    )
    mean_make = stats.create_ms / stats.created / 1000 if stats.created else 0.0
    yield Row(
        "made",
        f"{stats.created} in {show_seconds(mean_make)} each, {stats.create_failures} failed; {stats.destroyed} removed,"
        f" {stats.destroy_failures} failed; {stats.retired} given up unused, {stats.found_dead} found dead,"
        f" {stats.orphans_reaped} of dead servers removed",
    )
    if stats.last_error and fine:
        yield Row("last error", stats.last_error)


def _settings(settings: Settings) -> Iterator[Row]:
    changed = [name for name in type(settings).model_fields if name in settings.model_fields_set]
    yield Row("given", ", ".join(f"{_flag(name)} {_value(settings, name)}" for name in changed) or "none")
    others = [name for name in type(settings).model_fields if name not in settings.model_fields_set]
    yield Row("default", ", ".join(f"{_flag(name)} {_value(settings, name)}" for name in others))
    for name, why in inapplicable(settings).items():
        given = name in settings.model_fields_set
        state = State.WARNING if given else State.PLAIN
        yield Row(_flag(name), f"does not apply: {why}", state, "Leave it out." if given else "")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_SIZES = {"memory", "disk", "max_output_bytes", "output_kill_bytes"}


def _value(settings: Settings, name: str) -> str:
    value = getattr(settings, name)
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in _SIZES:
        return show_bytes(value).replace(" ", "")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _judged(name: str, value: str, good: bool, fix: str) -> Row:  # noqa: FBT001  # the judgement is the point
    return Row(name, value, State.GOOD if good else State.WARNING, "" if good else fix)


def _yes(value: int | None) -> str:
    return "not told" if value is None else "yes" if value else "no"


def _capabilities(measured: Measured) -> str:
    if measured.effective_capabilities is None:
        return "not told"
    usable = _names(int(measured.effective_capabilities, 16))
    bounding = _names(int(measured.capabilities or "0", 16))
    return f"{usable or 'none'}{f' (bounding set: {bounding})' if bounding else ''}"


def _names(bits: int) -> str:
    set_: Iterable[int] = (bit for bit in range(64) if bits >> bit & 1)
    return ", ".join(_CAPABILITY_BITS.get(bit, f"number {bit}") for bit in set_)

"""The server's settings: one class, four sources.

A flag beats a ``PYTHON_EXEC_SANDBOX_*`` variable, which beats the file named by ``--config``, which beats
the default. The command line is built from this class by :mod:`python_exec_sandbox.flags`, the sources are
read and their errors worded by :mod:`python_exec_sandbox.setting_sources`.
"""

import math
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from python_exec_sandbox.model.environment import DEFAULT_STORE_BYTES
from python_exec_sandbox.model.limits import MIB, RUNNER_RESERVE_BYTES, SandboxLimits
from python_exec_sandbox.run.records import SUPPORTED_PYTHONS
from python_exec_sandbox.setting_values import (
    Backend,
    LogLevel,
    Network,
    PullPolicy,
    SourceBuilds,
    between,
    cutoff,
    empty_is_none,
    flag_bytes,
    lower_case,
    open_addresses,
    open_domains,
    open_ports,
    parse_seconds,
    public_addresses,
    show_bytes,
    show_seconds,
)

ENV_PREFIX = "PYTHON_EXEC_SANDBOX_"

# Less room than this holds hardly any package.
SMALLEST_ENVIRONMENT_BYTES = 16 * MIB

GIB = 1024 * MIB
DAY_SECONDS = 86_400.0


class Group(StrEnum):
    """Headings of ``--help``, in their order there."""

    SCRIPTS = "Scripts"
    SANDBOXES = "Sandboxes"
    LIMITS = "Limits of one sandbox"
    OUTPUT = "Output"
    POOL = "Pool"
    SERVER = "Server"


@dataclass(frozen=True, slots=True)
class Flag:
    """How a setting looks on the command line; ``default`` is the text that ``--help`` shows for it."""

    group: Group
    metavar: str = ""
    default: str = ""
    repeatable: bool = False
    """Whether it is a list with blanks between its items, of which each flag may bring some."""


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
OptionalText = Annotated[StrictStr | None, BeforeValidator(empty_is_none)]
DEFAULT_STORE = "python-exec-sandbox-store"
StoreName = Annotated[
    StrictStr, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}$")
]  # as engines name volumes
IndexUrls = AfterValidator(public_addresses)
Cutoff = AfterValidator(cutoff)
RunSeconds = Annotated[Seconds, between(0.1, DAY_SECONDS, show_seconds)]


def _without_credentials(address: str | None) -> str | None:
    """An address is shown to models, and told in errors of downloads."""
    if address is None:
        return None
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("is not the address of a server, such as https://pythons.example/releases")
    if "@" in parts.netloc:
        raise ValueError("has credentials in it, which are not supported")
    return address


def _trusted_certificates() -> Path | None:
    """The bundle that the server itself was told to trust, where there is one."""
    named = os.environ.get("SSL_CERT_FILE")
    return Path(named) if named and Path(named).is_file() else None


def untrusted_bundle() -> str | None:
    """What ``SSL_CERT_FILE`` names, where that is no file."""
    named = os.environ.get("SSL_CERT_FILE")
    return named if named and not Path(named).is_file() else None


def _default_run_seconds(earlier: dict[str, Any]) -> float:
    return float(min(30.0, earlier["max_timeout"]))


def _default_disk(earlier: dict[str, Any]) -> ByteSize:
    """4/7 of what the runner leaves of the memory (256 MiB of 512), at most 256 MiB."""
    return ByteSize(min(256 * MIB, (earlier["memory"] - RUNNER_RESERVE_BYTES) * 4 // 7))


def _default_pool_size(earlier: dict[str, Any]) -> int:
    return int(min(2, earlier["max_sandboxes"]))


class Settings(BaseSettings):
    """All settings, checked; sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, validate_default=True
    )

    python_version: Annotated[StrictStr, Flag(Group.SCRIPTS, "X.Y", "3.13")] = Field(
        "3.13", description="Python for scripts that don't choose one"
    )
    max_timeout: Annotated[RunSeconds, Flag(Group.SCRIPTS, "SECONDS", "300")] = Field(
        300.0, description="longest run a call may ask for"
    )
    default_timeout: Annotated[RunSeconds, Flag(Group.SCRIPTS, "SECONDS", "30")] = Field(
        default_factory=_default_run_seconds, description="run time of calls that don't say"
    )
    install_timeout: Annotated[RunSeconds, Flag(Group.SCRIPTS, "SECONDS", "120")] = Field(
        120.0, description="longest installation of dependencies"
    )
    resolution_ttl: Annotated[
        Seconds, between(0, 365 * DAY_SECONDS, show_seconds), Flag(Group.SCRIPTS, "SECONDS", "3600")
    ] = Field(
        3600.0, description="time for which open versions stay as they were resolved; pinned ones always do"
    )

    index_url: Annotated[OptionalText, IndexUrls, Flag(Group.SCRIPTS, "URL", "uv's own")] = Field(
        None, description="index that packages come from"
    )
    extra_index_url: Annotated[OptionalText, IndexUrls, Flag(Group.SCRIPTS, "URLS", "uv's own")] = Field(
        None, description="indexes that are asked before it, separated by blanks"
    )
    exclude_newer: Annotated[OptionalText, Cutoff, Flag(Group.SCRIPTS, "WHEN", "uv's own")] = Field(
        None, description='only packages older than a date ("2026-05-01") or a time ("7 days")'
    )

    only_index: Annotated[bool, Flag(Group.SCRIPTS, default="off")] = Field(
        False, description="packages come from the indexes alone, from no address that a script names"
    )
    source_builds: Annotated[
        SourceBuilds, BeforeValidator(lower_case), Flag(Group.SCRIPTS, "WHEN", "allow")
    ] = Field(
        SourceBuilds.ALLOW, description="what has no wheel: allow its build, in a sandbox, or refuse it"
    )

    sandbox_backend: Annotated[
        Backend, BeforeValidator(lower_case), Flag(Group.SANDBOXES, "KIND", "native")
    ] = Field(
        Backend.NATIVE,
        description="native (bubblewrap on Linux, else docker), docker or none (scripts are NOT sandboxed)",
    )
    allow_unsandboxed: Annotated[bool, Flag(Group.SANDBOXES, default="off")] = Field(
        False, description="when no sandbox can be made, run scripts NOT sandboxed instead of refusing"
    )
    uv_path: Annotated[StrictStr, Flag(Group.SANDBOXES, "PATH", "uv")] = Field(
        "uv", description="uv for scripts outside containers (an image has its own)"
    )
    network: Annotated[Network, BeforeValidator(lower_case), Flag(Group.SANDBOXES, "KIND", "filtered")] = (
        Field(
            Network.FILTERED,
            description="what scripts reach: none, filtered (the public Internet) or full (the local network too)",
        )
    )
    allow_domain: Annotated[
        OptionalText, AfterValidator(open_domains), Flag(Group.SANDBOXES, "NAMES", "all", repeatable=True)
    ] = Field(None, description="filtered: the only domains open, such as example.org or *.example.org")
    allow_address: Annotated[
        OptionalText, AfterValidator(open_addresses), Flag(Group.SANDBOXES, "RANGES", "none", repeatable=True)
    ] = Field(None, description="filtered: addresses open although not public, such as 192.168.1.0/24")
    allow_port: Annotated[
        OptionalText, AfterValidator(open_ports), Flag(Group.SANDBOXES, "PORTS", "80 443", repeatable=True)
    ] = Field(None, description="filtered: ports open beside 80 and 443")
    docker_host: Annotated[OptionalText, Flag(Group.SANDBOXES, "URL", "found by itself")] = Field(
        None, description="the container engine, such as unix:///var/run/docker.sock"
    )
    runtime: Annotated[OptionalText, Flag(Group.SANDBOXES, "NAME", "the engine's")] = Field(
        None, description="OCI runtime, such as runsc"
    )
    image: Annotated[OptionalText, Flag(Group.SANDBOXES, "REF", "built from this package")] = Field(
        None, description="sandbox image to use instead of building one"
    )
    base_image: Annotated[OptionalText, Flag(Group.SANDBOXES, "REF", "the Dockerfile's")] = Field(
        None, description="image that the sandbox image is built on"
    )
    store: Annotated[StoreName, Flag(Group.SANDBOXES, "NAME", DEFAULT_STORE)] = Field(
        DEFAULT_STORE, description="volume that installed packages are kept in"
    )
    store_size: Annotated[
        ByteSize, between(64 * MIB, 1024 * GIB, show_bytes), Flag(Group.SANDBOXES, "SIZE", "10GiB")
    ] = Field(
        ByteSize(DEFAULT_STORE_BYTES),
        description="room for installed packages; beyond it those not used for longest go",
    )
    python_mirror: Annotated[
        OptionalText, AfterValidator(_without_credentials), Flag(Group.SANDBOXES, "URL", "uv's own source")
    ] = Field(None, description="where Pythons that the image lacks come from: a copy, or a list (.json)")
    no_warm_cache: Annotated[bool, Flag(Group.SANDBOXES, default="off")] = Field(
        False, description="don't install packages that scripts often need while nothing is to be done"
    )
    pull_policy: Annotated[
        PullPolicy, BeforeValidator(lower_case), Flag(Group.SANDBOXES, "WHEN", "missing")
    ] = Field(PullPolicy.MISSING, description="when --image is pulled: missing, always or never")
    ca_bundle: Annotated[
        Path | None, BeforeValidator(empty_is_none), Flag(Group.SANDBOXES, "FILE", "SSL_CERT_FILE")
    ] = Field(
        default_factory=_trusted_certificates, description="certificates that installs and builds trust"
    )

    memory: Annotated[
        ByteSize, between(128 * MIB, 1024 * GIB, show_bytes), Flag(Group.LIMITS, "SIZE", "512MiB")
    ] = Field(
        ByteSize(512 * MIB),
        description="all in all, without swap; packages may take it less --disk and 64MiB",
    )
    cpus: Annotated[float, between(0.1, 256), Flag(Group.LIMITS, "NUMBER", "1")] = Field(
        1.0, description="processors"
    )
    pids: Annotated[int, between(16, 32_768), Flag(Group.LIMITS, "NUMBER", "128")] = Field(
        128, description="processes and threads"
    )
    disk: Annotated[
        ByteSize, between(16 * MIB, 1024 * GIB, show_bytes), Flag(Group.LIMITS, "SIZE", "256MiB")
    ] = Field(
        default_factory=_default_disk,
        description="folders scripts write: /work 1/2, /tmp 1/4, /dev/shm 3/16, home 1/16",
    )

    max_output_bytes: Annotated[
        ByteSize, between(1024, 64 * MIB, show_bytes), Flag(Group.OUTPUT, "SIZE", "100KiB")
    ] = Field(ByteSize(102_400), description="output that is kept; beyond it the middle is dropped")
    show_chars: Annotated[int, between(200, 1_000_000), Flag(Group.OUTPUT, "NUMBER", "8000")] = Field(
        8000, description="characters of output that the model is shown"
    )
    output_kill_bytes: Annotated[
        ByteSize, between(64 * 1024, 1024 * GIB, show_bytes), Flag(Group.OUTPUT, "SIZE", "1GiB")
    ] = Field(ByteSize(GIB), description="output that ends a script")
    structured_output: Annotated[bool, Flag(Group.OUTPUT, default="off")] = Field(
        False, description="add structuredContent to results (many clients then hide the text)"
    )

    max_sandboxes: Annotated[int, between(1, 256), Flag(Group.POOL, "NUMBER", "8")] = Field(
        8, description="sandboxes that exist at once"
    )
    pool_size: Annotated[int, between(0, 64), Flag(Group.POOL, "NUMBER", "2")] = Field(
        default_factory=_default_pool_size, description="warm sandboxes kept ready"
    )
    max_waiting: Annotated[int, between(0, 10_000), Flag(Group.POOL, "NUMBER", "32")] = Field(
        32, description="calls that may wait for a sandbox, also for one still being made; more are refused"
    )
    idle_timeout: Annotated[
        Seconds, between(1, 30 * DAY_SECONDS, show_seconds), Flag(Group.POOL, "SECONDS", "600")
    ] = Field(600.0, description="time without a call after which warm sandboxes are given up")
    settle_time: Annotated[Seconds, between(0, 60, show_seconds), Flag(Group.POOL, "SECONDS", "2")] = Field(
        2.0, description="longest time that engine work is put off while scripts run"
    )

    log_level: Annotated[LogLevel, BeforeValidator(lower_case), Flag(Group.SERVER, "LEVEL", "info")] = Field(
        LogLevel.INFO, description="what is told on stderr: debug, info, warning or error"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags and the environment only: no ``.env`` of whatever folder the client was started in."""
        return init_settings, env_settings

    @field_validator("ca_bundle")
    @classmethod
    def _is_file(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError("is not an existing file")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        """Settings that contradict each other, each named with its number."""
        if not self._is_available_python():
            if self.sandbox_backend is not Backend.DOCKER:
                raise ValueError(f"--python-version {self.python_version} is no version such as 3.13")
            raise ValueError(
                f"--python-version {self.python_version} is not available; the sandbox has "
                f"{', '.join(SUPPORTED_PYTHONS)} (another one needs an --image of your own that has it)"
            )
        keeps_network = self.network is Network.NONE or "network" in self.model_fields_set
        if self.network is not Network.FULL and keeps_network and self.may_run_unsandboxed:
            asked = "--sandbox-backend none" if self.is_unsandboxed else "--allow-unsandboxed"
            raise ValueError(
                f"--network {self.network} can't be kept with {asked}: a script on the machine itself has its network;"
                " leave out one of the two"
            )
        for name in ("allow_domain", "allow_address", "allow_port"):
            if getattr(self, name) is not None and self.network is not Network.FILTERED:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(
                    f"{flag} opens a part of the filtered network, not of --network {self.network}"
                )
        if self.default_timeout > self.max_timeout:
            raise ValueError(
                f"--default-timeout {self.default_timeout:g} is above --max-timeout {self.max_timeout:g}"
            )
        if self.pool_size > self.max_sandboxes:
            raise ValueError(f"--pool-size {self.pool_size} is above --max-sandboxes {self.max_sandboxes}")
        if self._environment_bytes < SMALLEST_ENVIRONMENT_BYTES:
            least = self.disk + RUNNER_RESERVE_BYTES + SMALLEST_ENVIRONMENT_BYTES
            raise ValueError(
                f"--memory {flag_bytes(self.memory)} can't hold --disk {flag_bytes(self.disk)}: what scripts"
                f" write lies in memory; use --memory {math.ceil(least / MIB)}MiB or more, or a smaller --disk"
            )
        return self

    @property
    def is_unsandboxed(self) -> bool:
        """Whether every script runs on the machine itself, as the person asked."""
        return self.sandbox_backend is Backend.NONE

    @property
    def may_run_unsandboxed(self) -> bool:
        """Whether the person allowed that any script does."""
        return self.is_unsandboxed or self.allow_unsandboxed

    def _is_available_python(self) -> bool:
        """Only the image's owner knows what an image of their own has, and only uv what the machine has."""
        if self.image is None and self.sandbox_backend is Backend.DOCKER:
            return self.python_version in SUPPORTED_PYTHONS
        return re.fullmatch(r"3\.\d{1,2}", self.python_version, flags=re.ASCII) is not None

    @property
    def _environment_bytes(self) -> int:
        return self.memory - self.disk - RUNNER_RESERVE_BYTES

    @property
    def can_install(self) -> bool:
        """Whether packages can be had: a builder has a network, whatever scripts have."""
        return not self.is_unsandboxed or self.network is not Network.NONE

    def sandbox_limits(self) -> SandboxLimits:
        """The limits that each sandbox is made with."""
        return SandboxLimits(
            memory_bytes=self.memory,
            cpus=self.cpus,
            processes=self.pids,
            disk_bytes=self.disk,
            environment_bytes=self._environment_bytes,
        )

"""Everything that is found out once per server, so that a sandbox costs its processes and nothing more."""

import base64
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.archive import pack, packaged_builder, packaged_runner
from python_exec_sandbox.drivers.bubblewrap.argv import OWN_PROCESSES, BuilderPlan, Plan, Source, outer_words
from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Group, Groups, Limit, Means
from python_exec_sandbox.drivers.bubblewrap.cgroup.claim import claim_groups
from python_exec_sandbox.drivers.bubblewrap.host import Host, look
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions
from python_exec_sandbox.drivers.bubblewrap.pythons import OLDEST_RUNNER, HostPython
from python_exec_sandbox.drivers.bubblewrap.seccomp.policy import filter_program
from python_exec_sandbox.drivers.bubblewrap.staging import MountNamespace, Stage, plan_stage
from python_exec_sandbox.drivers.bubblewrap.store import StoreFolders, make_store
from python_exec_sandbox.drivers.identity import own_identity
from python_exec_sandbox.errors import ConfigurationError, CreateFailed, PythonUnavailable
from python_exec_sandbox.model.limits import MIB, SandboxLimits

# The kernel's counters, as folders of a control group have them -> where the runner looks for them.
_COUNTERS = (
    ("memory.events", "/sys/fs/cgroup"),
    ("memory.oom_control", "/sys/fs/cgroup/memory"),
    ("pids.events", "/sys/fs/cgroup/pids"),
)

# Addresses are not memory: an allocator and each thread's stack reserve many that are never touched.
_ADDRESS_FACTOR = 4
_LEAST_ADDRESS_BYTES = 2048 * MIB

# Resolving and unpacking take little; compiling large packages on every processor takes some hundred MiB. uv takes
# threads by the number of processors, several times.
BUILDER_MEMORY_BYTES = 1024 * MIB
BUILDER_PROCESSES = 512

# Its files lie in its memory.
SOURCE_MEMORY_BYTES = 1536 * MIB


@dataclass(slots=True)
class Workshop:
    """Made by :meth:`open`. ``caches`` holds what a trial of each Python has shown; until then it has none."""

    options: BubblewrapOptions
    host: Host
    runner_python: HostPython
    runner: bytes
    builder: Mapping[str, bytes]
    seccomp: bytes
    stage: Stage
    groups: Groups
    is_root: bool
    ca_bundle: Path | None
    store: StoreFolders | None = None
    store_problem: str = ""
    mounts: MountNamespace | None = None
    caches: dict[str, Mapping[str, bytes]] = field(default_factory=dict)

    @classmethod
    def open(cls, options: BubblewrapOptions, environment: Mapping[str, str], home: Path) -> "Workshop":
        """Look at the machine, and claim control groups. Blocks for up to seconds: call it in a worker thread.

        Raises:
            CreateFailed: something is missing.
            ConfigurationError: an option can't be fulfilled on this machine.
        """
        host = look(environment, home, options.uv)
        capable = [python for python in host.pythons if python.numbers >= OLDEST_RUNNER]
        if not capable:
            raise CreateFailed(
                f"Sandboxes need a Python of version 3.11 or later beside {', '.join(p.version for p in host.pythons)}: "
                "install one (`uv python install 3.13`), or use --sandbox-backend docker."
            )
        is_root = os.geteuid() == 0
        workshop = cls(
            options=options,
            host=host,
            runner_python=capable[-1],
            runner=packaged_runner(),
            builder=packaged_builder(),
            seccomp=filter_program(platform.machine()),
            stage=Stage(),
            groups=claim_groups(own_identity()),
            is_root=is_root,
            ca_bundle=_resolved_file(options.ca_bundle),
        )
        workshop._set_up()
        return workshop

    def _set_up(self) -> None:
        """Make the store and the stage; without the store where sandboxes can be made, but not with it."""
        try:
            if self.options.store is not None:
                self.store = make_store(self.options.store, is_root=self.is_root)
            self._set_stage()
        except CreateFailed as error:
            if self.options.store is None:
                raise
            self.store, self.store_problem = None, str(error)
            self._set_stage()

    def _set_stage(self) -> None:
        if not self.is_root:
            return
        plan = self.plan(self.runner_python.version, ())
        sources = [word.path for word in outer_words(plan) if isinstance(word, Source)]
        if self.store is not None:
            sources.append(self.store.root)
        bwrap = self.host.bwrap
        self.stage = plan_stage(bwrap, [path for path in sources if path != bwrap.path])
        if self.stage.places:
            self.mounts = MountNamespace(self.stage)

    def close(self) -> None:
        """Give back what the machine was asked for. Call it in a worker thread."""
        self.groups.close()
        if self.mounts is not None:
            self.mounts.close()

    @property
    def program(self) -> str:
        """bwrap, as the sandbox's user reaches it."""
        return self.stage.path(self.host.bwrap.path)

    def plan(self, python: str, counters: tuple[tuple[Path, str], ...]) -> Plan:
        """The plan of a sandbox in which ``python`` waits.

        Raises:
            PythonUnavailable: this machine doesn't have it.
        """
        if self.host.python(python) is None:
            has = ", ".join(each.version for each in self.host.pythons)
            raise PythonUnavailable(
                f"This machine has no Python {python}, but {has}: install it (`uv python install {python}`) and "
                "restart the server, or ask for another version."
            )
        processes, address_bytes = self._limits_inside()
        return Plan(
            host=self.host,
            limits=self.options.limits,
            network=self.options.network,
            python=python,
            runner_python=self.runner_python,
            runner=self.runner,
            seccomp=self.seccomp,
            ca_bundle=self.ca_bundle,
            environment=self.options.environment,
            store=self.store.seen if self.store is not None else (),
            counters=counters,
            cache=self.caches.get(python),
            script_processes=processes,
            script_address_bytes=address_bytes,
        )

    def _limits_inside(self) -> tuple[int, int]:
        """RLIMIT_NPROC and RLIMIT_AS where no control group does their work."""
        means = {state.limit: state.means for state in self.groups.effective}
        limits = self.options.limits
        processes = limits.processes if means.get(Limit.PROCESSES) is Means.RLIMIT else 0
        by_address = means.get(Limit.MEMORY) is Means.RLIMIT
        address_bytes = max(limits.memory_bytes * _ADDRESS_FACTOR, _LEAST_ADDRESS_BYTES) if by_address else 0
        return processes, address_bytes

    def open_group(self) -> Group:
        """A control group for one sandbox. Call it in a worker thread."""
        limits = self.options.limits
        return self.groups.open(replace(limits, processes=limits.processes + OWN_PROCESSES))

    def builder_plan(self, *, from_source: bool = False) -> BuilderPlan:
        """The plan of a builder's sandbox, or of a build sandbox, which doesn't see the store.

        Raises:
            CreateFailed: there is no store.
        """
        if self.store is None:
            raise CreateFailed(self.store_problem or "There is no store for packages.")
        return BuilderPlan(
            host=self.host,
            python=self.runner_python,
            builder=self.builder,
            seccomp=self.seccomp,
            store=None if from_source else self.store.root,
            ca_bundle=self.ca_bundle,
        )

    def open_builder_group(self, *, from_source: bool = False) -> Group:
        """A control group for one builder. Call it in a worker thread."""
        cpus = float(os.cpu_count() or 1)
        memory = SOURCE_MEMORY_BYTES if from_source else BUILDER_MEMORY_BYTES
        limits = SandboxLimits(memory_bytes=memory, cpus=cpus, processes=BUILDER_PROCESSES)
        return self.groups.open(limits)

    def learn(self, python: str, printed: bytes) -> None:
        """Take in what a trial of ``python`` printed.

        Raises:
            CreateFailed: it isn't what a trial prints.
        """
        try:
            told = json.loads(printed)
            self.caches[python] = _decoded(told["cache"])
            self.runner = pack(_decoded(told["code"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CreateFailed(f"A trial sandbox of Python {python} answered with something else.") from error


def counters_of(group: Group) -> tuple[tuple[Path, str], ...]:
    """Where a group's counters lie, and where the runner looks for them. Call it in a worker thread."""
    folders = [entrance.parent for entrance in group.entrances]
    return tuple(
        (folder, place) for name, place in _COUNTERS for folder in folders if (folder / name).exists()
    )[:2]


def _decoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(content) for name, content in files.items()}


def _resolved_file(path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        return path.resolve(strict=True)
    except OSError as error:
        raise ConfigurationError(f"The CA bundle {path} can't be read: {error}.") from error

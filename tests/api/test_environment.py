"""What is gathered, when, and how it is judged; the engine and the sandbox are played."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from python_exec_sandbox.api import environment as environment_module
from python_exec_sandbox.api.check_environment import data_of
from python_exec_sandbox.api.environment import Environment, Surveyor
from python_exec_sandbox.api.environment_rows import sections
from python_exec_sandbox.api.inapplicable import inapplicable
from python_exec_sandbox.api.row import Row, State
from python_exec_sandbox.api.runtime import Backend
from python_exec_sandbox.errors import EngineUnreachable, PoolUnavailable
from python_exec_sandbox.model.facts import DriverFacts
from python_exec_sandbox.model.limits import MIB
from python_exec_sandbox.pool.stats import PoolPhase, PoolStats
from python_exec_sandbox.run.measuring import Measured
from python_exec_sandbox.run.own_programs import MEASURE
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult, SilentListener
from python_exec_sandbox.setting_values import Backend as Backend_
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings
from tests.support.fake_serving import ObedientExecutor

pytestmark = pytest.mark.anyio

WELL: dict[str, Any] = {
    "python": "3.13.1",
    "system": "Linux 6.1 x86_64",
    "uv": "0.9.0",
    "uv_path": "/usr/local/bin/uv",
    "pythons": ["3.13.1", "3.14.0"],
    "uid": 58000,
    "gid": 1000,
    "capabilities": "e0",
    "effective_capabilities": "0",
    "no_new_privileges": 1,
    "seccomp": 2,
    "processes_seen": 2,
    "devices": ["lo"],
    "variables": ["HOME"],
    "root_is_read_only": True,
    "folders": [
        {"path": "/work", "kind": "tmpfs", "bytes": 128 * MIB},
        {"path": "/tmp", "kind": "tmpfs", "bytes": 64 * MIB},
        {"path": "/dev/shm", "kind": "tmpfs", "bytes": 48 * MIB},
        {"path": "/home/sandbox", "kind": "tmpfs", "bytes": 16 * MIB},
        {"path": "/env", "kind": "tmpfs", "bytes": 192 * MIB},
    ],
    "control_groups": 2,
    "memory_bytes": 512 * MIB,
    "swap_bytes": 0,
    "processes": 128,
    "cpus": 1.0,
    "open_files": 1024,
    "core_bytes": 0,
}

STATS = PoolStats(
    creating=0,
    idle=2,
    leased=1,
    destroying=0,
    waiting=0,
    granted=4,
    granted_at_once=3,
    wait_ms=200.0,
    created=5,
    create_ms=2500.0,
    create_failures=0,
    found_dead=0,
    retired=0,
    destroyed=2,
    destroy_failures=0,
    orphans_reaped=0,
    phase=PoolPhase.RUNNING,
    last_error=None,
    retry_seconds=None,
)


@dataclass
class PlayedBackend:
    """A backend whose engine says ``facts``, whose sandboxes answer ``measured``."""

    facts: DriverFacts | Exception = field(
        default_factory=lambda: DriverFacts((("engine", "an engine"),), "image-1")
    )
    measured: str = field(default_factory=lambda: json.dumps(WELL))
    activity: Callable[[], str | None] = lambda: None
    hangs: bool = False
    has_fallback: bool = False
    executor: ObedientExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.executor = ObedientExecutor({MEASURE: self.measured})

    async def tell(self) -> DriverFacts:
        if self.hangs:
            await anyio.sleep_forever()
        if isinstance(self.facts, Exception):
            raise self.facts
        return self.facts

    def open(self) -> Backend:
        return Backend(
            self.executor,
            self.activity,
            pythons=("3.13", "3.14"),
            facts=self.tell,
            stats=lambda: STATS,
            has_fallback=self.has_fallback,
        )


async def surveyed(
    played: PlayedBackend, surveyor: Surveyor | None = None, patience: float | None = 5
) -> Environment:
    with anyio.fail_after(10):
        return await (surveyor or Surveyor(300)).survey(played.open(), SilentListener(), patience=patience)


def rows(found: Environment, **settings: Any) -> dict[str, Row]:
    parts = sections(Settings(ca_bundle=None, **settings), found)
    return {row.name: row for part in parts for row in part.rows}


async def test_a_sandbox_is_measured_and_everything_is_well() -> None:
    found = await surveyed(PlayedBackend())
    assert found.can_run
    shown = rows(found)
    assert not [row for row in shown.values() if row.needs_care]
    assert shown["memory"].value == "512 MiB"
    assert shown["Pythons"].value.startswith("3.13, 3.14 (3.13.1, 3.14.0)")
    assert shown["capabilities"].value == "none (bounding set: KILL, SETGID, SETUID)"
    assert shown["sandboxes"].value.startswith("2 idle, 1 in use")
    assert shown["calls served"].value == "4, of them 3 at once; waited 0.05 s on average"


async def test_one_measurement_is_remembered_for_all_sandboxes_of_one_image() -> None:
    played, surveyor = PlayedBackend(), Surveyor(300)
    assert not (await surveyed(played, surveyor)).remembered
    assert (await surveyed(played, surveyor)).remembered
    assert len(played.executor.ran) == 1
    played.facts = DriverFacts((), "image-2")
    assert not (await surveyed(played, surveyor)).remembered
    assert len(played.executor.ran) == 2


async def test_what_can_not_be_identified_is_measured_each_time() -> None:
    played, surveyor = PlayedBackend(facts=DriverFacts()), Surveyor(300)
    for _ in range(2):
        assert not (await surveyed(played, surveyor)).remembered
    assert len(played.executor.ran) == 2


async def test_a_missing_engine_is_told_although_a_measurement_is_remembered_and_nothing_is_run() -> None:
    played, surveyor = PlayedBackend(), Surveyor(300)
    await surveyed(played, surveyor)
    played.facts = EngineUnreachable("no engine\n  tried here\nstart Docker")
    found = await surveyed(played, surveyor)
    assert not found.can_run
    assert len(played.executor.ran) == 1
    row = rows(found)["can run"]
    assert (row.value, row.state) == ("no", State.BAD)
    assert "start Docker" in row.fix


async def test_a_hung_engine_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_module, "FACTS_SECONDS", 0.05)
    found = await surveyed(PlayedBackend(hangs=True))
    assert not found.can_run
    assert "did not answer within 0.05 s" in str(found.failure)


async def test_a_sandbox_that_can_not_be_made_is_told_with_its_cause() -> None:
    found = await surveyed(PlayedBackend(measured="unreachable"))
    assert not found.can_run
    assert isinstance(found.failure, PoolUnavailable)
    assert "start Docker" in rows(found)["can run"].fix


class OnTheMachine(ObedientExecutor):
    """Runs nothing in a sandbox, as the person allowed."""

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        return replace(await super().run(request, listener), unsandboxed="there is no engine.")


async def test_a_script_that_runs_on_the_machine_itself_is_said_to_and_never_taken_for_a_sandbox() -> None:
    played, surveyor = PlayedBackend(facts=EngineUnreachable("no engine"), has_fallback=True), Surveyor(300)
    played.executor = OnTheMachine({MEASURE: json.dumps(WELL | {"process_data_bytes": 512 * MIB})})
    found = await surveyed(played, surveyor)
    assert found.can_run
    shown = rows(found, allow_unsandboxed=True)
    assert shown["can run"].value == "yes, but NOT sandboxed"
    assert shown["can run"].needs_care
    assert shown["engine"].fix == "no engine."
    assert shown["data of a process"].state is State.GOOD
    assert shown["size of a file"].value == "asked for 256 MiB, none to be seen"
    assert shown["does not hold"].needs_care
    assert "capabilities" not in shown and "memory" not in shown
    played.facts = DriverFacts((), "image-1")
    await surveyed(played, surveyor)
    assert not (await surveyed(played, surveyor)).remembered


@pytest.mark.parametrize("answer", ["nonsense", "{}", "[]"])
async def test_an_answer_that_can_not_be_read_is_no_measurement(answer: str) -> None:
    found = await surveyed(PlayedBackend(measured=answer))
    assert not found.can_run
    assert "can't be read" in str(found.failure)


async def test_an_image_that_is_being_built_is_not_waited_for_longer_than_allowed() -> None:
    class Slow(ObedientExecutor):
        async def run(self, *args: Any) -> Any:
            await anyio.sleep_forever()

    played = PlayedBackend(facts=DriverFacts((), None, "the image x"), activity=lambda: "step 3/9")
    played.executor = Slow()
    found = await surveyed(played, patience=0.05)
    assert found.can_run
    assert found.measured is None
    row = rows(found)["can run"]
    assert row.value == "not yet: step 3/9; ask again in a while"
    assert row.state is State.WARNING


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("memory", {"memory_bytes": None}, "asked for 512 MiB, none to be seen"),
        ("memory", {"memory_bytes": 1024 * MIB}, "1 GiB instead of the 512 MiB asked for"),
        ("swap", {"swap_bytes": 512 * MIB}, "512 MiB instead of the 0 bytes asked for"),
        ("processors", {"cpus": None}, "asked for 1, none to be seen"),
        ("processes and threads", {"processes": 9999}, "9999 instead of the 128 asked for"),
        ("open files", {"open_files": 1 << 20}, "instead of the 1024"),
        ("folder /work", {"folders": WELL["folders"][1:]}, "asked for 128 MiB, none to be seen"),
        (
            "folder /var/tmp",
            {"folders": [*WELL["folders"], {"path": "/var/tmp", "kind": "overlay", "bytes": 1 << 30}]},
            "1 GiB (overlay), writable and of no limit of ours",
        ),
        ("user", {"uid": 0}, "uid 0"),
        ("capabilities", {"effective_capabilities": "80"}, "SETUID (bounding set"),
        ("no new privileges", {"no_new_privileges": 0}, "no"),
        ("system calls (seccomp)", {"seccomp": 0}, "not filtered (mode 0)"),
        ("root file system", {"root_is_read_only": False}, "writable"),
        ("uv", {"uv": None}, "version not told"),
    ],
)
async def test_what_does_not_hold_is_said_with_what_to_do(
    name: str, changed: dict[str, Any], words: str
) -> None:
    found = Environment(("3.13",), measured=Measured.model_validate(WELL | changed))
    row = rows(found)[name]
    assert row.state is State.WARNING
    assert words in row.value
    assert row.fix


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("memory", {"memory": 600 * MIB, "disk": 256 * MIB}),
        ("processors", {"cpus": 2.0}),
        ("processes and threads", {"pids": 64}),
        ("folder /work", {"disk": 128 * MIB}),
        ("folder /env", {"disk": 128 * MIB}),
    ],
)
async def test_each_limit_is_held_against_its_setting(name: str, setting: dict[str, Any]) -> None:
    found = Environment(("3.13",), measured=Measured.model_validate(WELL))
    assert rows(found)[name].state is State.GOOD
    assert rows(found, **setting)[name].state is State.WARNING


def test_what_a_driver_keeps_from_outside_is_not_called_a_limit_that_does_not_hold() -> None:
    measured = Measured.model_validate(WELL | {"cpus": None, "processes": 131})
    for facts, care in ((DriverFacts(own_processes=3, hides_cpus=True), False), (DriverFacts(), True)):
        shown = rows(Environment(facts=facts, measured=measured))
        assert shown["processors"].needs_care is care
        assert shown["processes and threads"].needs_care is care


async def test_without_a_network_there_must_be_the_loopback_alone() -> None:
    alone = Measured.model_validate(WELL)
    measured = alone.model_copy(update={"devices": ("eth0", "lo")})
    for network in (Network.NONE, Network.FILTERED):
        assert rows(Environment(measured=measured), network=network)["network devices"].needs_care
        assert not rows(Environment(measured=alone), network=network)["network devices"].needs_care
    assert not rows(Environment(measured=measured), network=Network.FULL)["network devices"].needs_care


async def test_a_backend_without_sandboxes_is_warned_of_even_if_nothing_runs() -> None:
    shown = rows(Environment(failure=EngineUnreachable("no uv")), sandbox_backend=Backend_.NONE)
    assert shown["backend"].needs_care
    assert "NOT sandboxed" in shown["backend"].value
    assert "memory for the runner" not in shown


async def test_a_pool_that_fails_shows_its_last_error() -> None:
    stats = replace(STATS, phase=PoolPhase.OPEN, last_error="no room")
    row = rows(Environment(stats=stats))["state"]
    assert (row.value, row.fix) == ("open", "no room")


def test_no_path_under_the_home_is_shown() -> None:
    bundle = Path.home() / "secret-name.pem"
    bundle.write_text("x")
    facts = DriverFacts((("engine", f"at unix://{Path.home()}/.engine/docker.sock"),))
    found = Environment(facts=facts, failure=EngineUnreachable(f"{Path.home()}/x is gone"))
    parts = sections(Settings(ca_bundle=bundle), found)
    measured = Measured.model_validate(WELL | {"uv_path": f"{Path.home()}/bin/uv"})
    text = str(parts) + str(data_of(parts, replace(found, measured=measured)))
    assert str(Path.home()) not in text
    assert "unix://~/.engine/docker.sock" in text
    assert "~/secret-name.pem" in text


def test_settings_that_do_not_apply_say_why_and_are_warned_of_when_given() -> None:
    docker = Settings(ca_bundle=None, sandbox_backend=Backend_.DOCKER)
    more = {"image": "x", "base_image": "y", "network": Network.NONE, "uv_path": "/opt/uv"}
    given = docker.model_copy(update=more)
    assert set(inapplicable(given)) == {"uv_path", "base_image"}
    shown = {row.name: row for part in sections(given, Environment()) for row in part.rows}
    assert shown["--base-image"].needs_care
    assert shown["--uv-path"].value == "does not apply: uv is part of the image"
    assert "--pull-policy" in inapplicable_flags(docker)


def test_without_containers_their_settings_do_not_apply_and_uv_does() -> None:
    found = inapplicable(Settings(ca_bundle=None, sandbox_backend=Backend_.NONE))
    assert {"image", "pool_size", "allow_unsandboxed"} <= set(found)
    assert "uv_path" not in found
    assert "uv_path" not in inapplicable(Settings(ca_bundle=None, allow_unsandboxed=True))
    native = inapplicable(Settings(ca_bundle=None, sandbox_backend=Backend_.NATIVE))
    assert "image" in native and "uv_path" not in native and "sandbox_backend" not in native


def inapplicable_flags(settings: Settings) -> set[str]:
    return {f"--{name.replace('_', '-')}" for name in inapplicable(settings)}


def test_all_settings_are_shown_with_their_values() -> None:
    shown = {
        row.name: row.value
        for part in sections(Settings(memory=1024 * MIB), Environment())
        for row in part.rows
    }
    assert "--memory 1GiB" in shown["given"]
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')} " in shown["given"] + ", " + shown["default"]


def test_packages_are_installed_without_a_network_for_scripts_too() -> None:
    for backend in (Backend_.DOCKER, Backend_.NATIVE):
        settings = Settings(ca_bundle=None, network=Network.NONE, sandbox_backend=backend)
        assert settings.can_install
        shown = {row.name: row.value for part in sections(settings, Environment()) for row in part.rows}
        assert shown["installation"] == "120 s"

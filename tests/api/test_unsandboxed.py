"""When a script may run outside a sandbox, and that its answer says so."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from python_exec_sandbox.api import backends
from python_exec_sandbox.api.app import instructions
from python_exec_sandbox.api.execute_python import execute_python_tool
from python_exec_sandbox.api.present import meta, present
from python_exec_sandbox.api.runtime import Runtime
from python_exec_sandbox.api.unsandboxed import AS_ASKED, AsAsked, Unsandboxed, WithFallback
from python_exec_sandbox.errors import (
    CreateFailed,
    EngineUnreachable,
    ImageUnavailable,
    PoolBusy,
    PoolTimeout,
    PoolUnavailable,
    PythonUnavailable,
    RequestError,
    SandboxError,
)
from python_exec_sandbox.model.result import Verdict
from python_exec_sandbox.run.executor import Executor
from python_exec_sandbox.run.outputs import OutputStore
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult, SilentListener
from python_exec_sandbox.script.intake import Examined
from python_exec_sandbox.setting_values import Backend
from python_exec_sandbox.settings import Settings

REQUEST = RunRequest("print(1)")


def result(**more: Any) -> RunResult:
    return RunResult("r", Verdict.OK, "exit 0 in 0.1 s", "3.13", "none", exit_code=0, **more)


@dataclass
class Chosen:
    """A backend that fails, or doesn't."""

    error: SandboxError | None = None

    async def examine(self, request: RunRequest) -> Examined:
        raise AssertionError("a run is not examined apart")

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        if self.error is not None:
            raise self.error
        return result()


@dataclass
class Spare:
    """Notes what it was asked to run outside a sandbox, and why."""

    asked: list[tuple[RunRequest, str]] = field(default_factory=list)

    async def run(self, request: RunRequest, listener: RunListener, why: str) -> RunResult:
        self.asked.append((request, why))
        return result(unsandboxed=why)


def caused(error: SandboxError, cause: Exception) -> SandboxError:
    error.__cause__ = cause
    return error


@pytest.mark.anyio
@pytest.mark.parametrize(
    "cause", [EngineUnreachable("no engine here"), ImageUnavailable("no image here")], ids=["engine", "image"]
)
async def test_without_an_engine_or_an_image_the_fallback_runs_it_and_the_answer_says_why(
    cause: Exception,
) -> None:
    spare = Spare()
    chosen = Chosen(caused(PoolUnavailable(f"no sandbox can be made: {cause}"), cause))
    ended = await WithFallback(chosen, cast("Unsandboxed", spare)).run(REQUEST, SilentListener())
    assert [request for request, _ in spare.asked] == [REQUEST]
    assert "--allow-unsandboxed" in ended.unsandboxed and str(cause) in ended.unsandboxed


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [
        PoolBusy("full"),
        PoolTimeout("long"),
        RequestError("wrong"),
        PoolUnavailable("no cause"),
        caused(PoolUnavailable("no such Python"), PythonUnavailable("3.99")),
        caused(PoolUnavailable("made badly"), CreateFailed("the engine refused")),
        caused(PoolBusy("full"), EngineUnreachable("gone")),
    ],
    ids=str,
)
async def test_any_other_failure_runs_nothing_outside_a_sandbox(error: SandboxError) -> None:
    spare = Spare()
    with pytest.raises(type(error)):
        await WithFallback(Chosen(error), cast("Unsandboxed", spare)).run(REQUEST, SilentListener())
    assert spare.asked == []


@pytest.mark.anyio
async def test_where_sandboxes_are_made_the_fallback_is_not_used() -> None:
    spare = Spare()
    ended = await WithFallback(Chosen(), cast("Unsandboxed", spare)).run(REQUEST, SilentListener())
    assert not ended.unsandboxed and spare.asked == []


@pytest.mark.anyio
async def test_what_runs_scripts_is_what_the_settings_name_and_never_unsandboxed_by_itself() -> None:
    nowhere = {
        "docker_host": "unix:///nonexistent/engine.sock",
        "pool_size": 0,
        "sandbox_backend": "docker",
    }
    for more, kind in (
        ({}, Executor),
        ({"allow_unsandboxed": True}, WithFallback),
        ({"sandbox_backend": "none"}, AsAsked),
        ({"sandbox_backend": "none", "allow_unsandboxed": True}, AsAsked),
    ):
        settings = Settings.model_validate({"ca_bundle": None, **nowhere, **more})
        async with backends.open_backend(settings, warm=False) as opened:
            assert isinstance(opened.executor, kind), more


@pytest.mark.parametrize("verdict", list(Verdict))
def test_each_answer_says_not_sandboxed_in_its_first_line_in_a_note_and_in_its_facts(
    verdict: Verdict,
) -> None:
    ended = RunResult("r", verdict, "how it ended", "3.13", "none", unsandboxed=AS_ASKED)
    lines = present(ended).text.splitlines()
    assert lines[0] == "how it ended (not sandboxed)"
    assert f"Note: not sandboxed: {AS_ASKED}" in lines
    assert lines[-1].startswith("[python 3.13; sandbox none (not sandboxed); ")
    assert (meta(ended)["sandboxed"], meta(ended)["unsandboxed"]) == (False, AS_ASKED)


def test_an_answer_from_a_sandbox_says_nothing_of_the_kind() -> None:
    ended = RunResult("r", Verdict.OK, "exit 0", "3.13", "docker")
    assert "not sandboxed" not in present(ended).text
    assert meta(ended)["sandboxed"] is True


def test_a_model_is_told_beforehand_and_its_client_asks_the_person() -> None:
    def told(settings: Settings) -> tuple[str, str, bool]:
        tool = execute_python_tool(settings, Runtime(lambda: backends.open_backend(settings)), OutputStore())
        assert tool.annotations is not None and len(tool.description) <= 1000
        assert len(instructions(settings)) <= 2000
        return tool.description, instructions(settings), bool(tool.annotations.destructive_hint)

    for text in told(Settings(ca_bundle=None, sandbox_backend=Backend.NONE))[:2]:
        assert "NOT sandboxed" in text and "throwaway sandbox" not in text
    for text in told(Settings(ca_bundle=None, allow_unsandboxed=True))[:2]:
        assert "NOT sandboxed when no sandbox can be made" in text and "throwaway sandbox" in text
    for text in told(Settings(ca_bundle=None))[:2]:
        assert "NOT sandboxed" not in text
    hints = [
        told(Settings(ca_bundle=None, sandbox_backend=kind, allow_unsandboxed=allowed))[2]
        for kind, allowed in ((Backend.DOCKER, False), (Backend.DOCKER, True), (Backend.NONE, False))
    ]
    assert hints == [False, True, True]

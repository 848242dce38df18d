"""Validation over an executor that runs nothing; the checker's answers are played."""

import json
from typing import Any

import anyio
import pytest

from python_exec_sandbox.errors import PoolUnavailable, SandboxError
from python_exec_sandbox.model.environment import Package
from python_exec_sandbox.model.result import OutputStream, Phase, Verdict
from python_exec_sandbox.run.own_programs import ANSWER_BYTES, CHECK_SYNTAX
from python_exec_sandbox.run.records import RunListener, RunRequest, RunResult, SilentListener
from python_exec_sandbox.run.resolving import Versions
from python_exec_sandbox.run.validation import Validation, validate
from python_exec_sandbox.script.intake import Examined, examine

pytestmark = pytest.mark.anyio

FINE: dict[str, Any] = {"python": "3.13.1", "error": None, "warnings": [], "imports": []}


class PlayedExecutor:
    """Answers each run with ``data`` in the pieces given, or raises."""

    def __init__(
        self,
        *data: bytes,
        verdict: Verdict = Verdict.OK,
        signal: int | None = None,
        error: Exception | None = None,
    ) -> None:
        self.data = data
        self.verdict = verdict
        self.signal = signal
        self.error = error
        self.requests: list[RunRequest] = []

    async def examine(self, request: RunRequest) -> Examined:
        return examine(
            request.script,
            pythons=("3.13", "3.14"),
            default_python="3.13",
            dependencies=request.dependencies,
            python_version=request.python_version,
        )

    async def run(self, request: RunRequest, listener: RunListener) -> RunResult:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        listener.phase(Phase.WAITING, "waiting for a sandbox")
        listener.phase(Phase.RUNNING, "running (limit 20 s)")
        for piece in self.data:
            await listener.output(OutputStream.STDOUT, piece)
        await listener.output(OutputStream.STDERR, b"noise")
        return RunResult(
            run_id="a",
            verdict=self.verdict,
            headline="out of memory: limit 512 MiB"
            if self.verdict is Verdict.OUT_OF_MEMORY
            else "a headline",
            sentence="Why.",
            python=request.python_version or "3.13",
            driver="fake",
            signal=self.signal,
            timeout_seconds=request.timeout_seconds or 0,
        )


def answering(**changes: Any) -> PlayedExecutor:
    return PlayedExecutor(json.dumps(FINE | changes).encode())


async def validated(executor: PlayedExecutor, script: str, **fields: Any) -> Validation:
    with anyio.fail_after(10):
        return await validate(executor, RunRequest(script, **fields), SilentListener(), longest=300)


async def test_the_script_goes_to_our_checker_as_its_input_and_is_never_what_runs() -> None:
    executor = answering()
    found = await validated(executor, "print(1)\r\n", python_version="3.14", dependencies=("six",))
    (request,) = executor.requests
    assert request.script == CHECK_SYNTAX
    assert request.stdin == b"print(1)\n"
    assert (request.python_version, request.dependencies, request.args) == ("3.14", (), ())
    assert found.is_valid
    assert found.requirements == ("six",)


async def test_all_problems_come_at_once_those_of_the_syntax_too() -> None:
    error = {"kind": "SyntaxError", "message": "invalid syntax", "line": 5, "column": 3, "text": "if x"}
    script = '# /// script\n# dependencies = ["not valid!"]\n# requires-python = "<3"\n# ///\nif x\n'
    found = await validated(answering(error=error), script, dependencies=("--index-url=x",))
    assert not found.is_valid
    assert len(found.problems) == 3
    assert found.python is None
    assert found.compiled is not None and found.compiled.error is not None
    assert found.compiled.error.line == 5


class PlayedResolver:
    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def resolve(
        self, python: str, requirements: tuple[str, ...], listener: RunListener, exclude_newer: str = ""
    ) -> Versions:
        self.asked.append((python, requirements))
        return self.versions


async def with_versions(
    versions: Versions, script: str = "import six, yaml"
) -> tuple[Validation, PlayedResolver]:
    imports = [{"module": "six", "line": 1}, {"module": "yaml", "line": 1}]
    resolver = PlayedResolver(versions)
    request = RunRequest(script, dependencies=("attrs",), python_version="3.14")
    with anyio.fail_after(10):
        found = await validate(
            answering(imports=imports),
            request,
            SilentListener(),
            longest=300,
            resolver=resolver,  # type: ignore[arg-type]  # a fake
        )
    return found, resolver


async def test_versions_are_those_for_the_chosen_python_and_count_as_brought() -> None:
    found, resolver = await with_versions(Versions((Package("attrs", "25.1"), Package("six", "1.17.0"))))
    assert resolver.asked == [("3.14", ("attrs",))]
    assert found.is_valid
    assert [one.module for one in found.missing] == ["yaml"]


async def test_requirements_that_lead_nowhere_make_a_script_not_valid() -> None:
    found, _ = await with_versions(Versions(problem="There is no package attrs."))
    assert not found.is_valid
    assert found.problems == ("There is no package attrs.",)


async def test_versions_that_nobody_can_tell_are_no_problem() -> None:
    found, _ = await with_versions(Versions(unknown="no engine"))
    assert found.is_valid


async def test_requirements_that_can_not_be_read_are_not_resolved() -> None:
    found, resolver = await with_versions(
        Versions(), '# /// script\n# dependencies = ["not valid!"]\n# ///\n'
    )
    assert resolver.asked == []
    assert found.versions is None


async def test_a_script_that_can_not_be_read_is_not_sent_anywhere() -> None:
    executor = answering()
    found = await validated(executor, "x = 1\0")
    assert executor.requests == []
    assert "NUL" in found.problems[0]
    assert not found.is_valid


async def test_without_a_sandbox_the_rest_is_told_and_why_the_syntax_is_not() -> None:
    executor = PlayedExecutor(error=PoolUnavailable("no engine: start Docker"))
    found = await validated(executor, "print(1)", dependencies=("six",))
    assert not found.is_valid
    assert found.problems == ()
    assert found.requirements == ("six",)
    assert found.unchecked == "no engine: start Docker"
    assert isinstance(found.cause, SandboxError)


@pytest.mark.parametrize(
    ("executor", "problem", "unchecked"),
    [
        (PlayedExecutor(verdict=Verdict.OUT_OF_MEMORY), "more memory than a sandbox has (512 MiB)", "memory"),
        (PlayedExecutor(verdict=Verdict.SIGNALLED, signal=11), "crashes on the script (SIGSEGV)", "crashed"),
        (PlayedExecutor(verdict=Verdict.TIMED_OUT), "", "did not finish within 20 s"),
        (PlayedExecutor(verdict=Verdict.SANDBOX_LOST), "", "a headline. Why."),
        (PlayedExecutor(b"no JSON"), "", "can't be read"),
        (PlayedExecutor(b'{"python": 3}'), "", "can't be read"),
        (PlayedExecutor(*[b"[" * 10_000] * 20), "", "can't be read"),
    ],
    ids=["memory", "crash", "time", "lost", "garbage", "wrong", "endless"],
)
async def test_what_a_script_does_to_the_compiler_is_an_answer(
    executor: PlayedExecutor, problem: str, unchecked: str
) -> None:
    found = await validated(executor, "print(1)")
    assert not found.is_valid
    assert found.compiled is None
    assert unchecked in found.unchecked
    assert len(found.problems) == bool(problem)
    assert problem in "".join(found.problems)


async def test_an_answer_in_pieces_is_put_together_and_bounded() -> None:
    data = json.dumps(FINE).encode()
    assert (await validated(PlayedExecutor(*[bytes([byte]) for byte in data]), "x")).is_valid
    too_long = json.dumps(FINE | {"python": "3" * ANSWER_BYTES}).encode()
    assert not (await validated(PlayedExecutor(too_long), "x")).is_valid


@pytest.mark.parametrize(
    ("module", "requirements", "is_missing"),
    [
        ("numpy", (), True),
        ("numpy", ("NumPy>=2",), False),
        ("yaml", ("pyyaml",), False),
        ("yaml", ("six",), True),
        ("google_auth", ("google.auth==2",), False),
        ("pkg_resources", ("setuptools",), False),
        ("imp", ("six",), True),
    ],
)
async def test_a_module_that_nothing_named_brings_is_missing(
    module: str, requirements: tuple[str, ...], is_missing: bool
) -> None:
    executor = answering(imports=[{"module": module, "line": 2}])
    found = await validated(executor, "x", dependencies=requirements)
    assert [one.module for one in found.missing] == ([module] if is_missing else [])
    assert found.is_valid


async def test_while_the_requirements_can_not_be_read_no_module_counts_as_missing() -> None:
    executor = answering(imports=[{"module": "numpy", "line": 2}])
    assert (await validated(executor, "x", dependencies=("not valid!",))).missing == ()


async def test_a_short_longest_run_time_is_kept() -> None:
    executor = answering()
    with anyio.fail_after(10):
        await validate(executor, RunRequest("x"), SilentListener(), longest=5)
    assert executor.requests[0].timeout_seconds == 5

"""The suite against the real engine: who may be left out, when that is a failure, and what is cleaned up.

A plain ``pytest`` takes only what is marked ``quick``, and that only where an engine answers; at its end it
says what it left out. ``pytest integration`` takes everything; without an engine each test is skipped with
the reason. With ``REQUIRE_INTEGRATION=1`` (CI) a skipped test, or module, is a failed one.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from integration.support.engine import Engine, find_engine, nothing_left
from integration.support.servers import DOCKER, RunningServer, StartServer, running_server
from integration.support.stores import own_store

HERE = Path(__file__).parent
REQUIRED = bool(os.environ.get("REQUIRE_INTEGRATION"))

TEST_SECONDS = 180
"""For tests that don't say: a sandbox is made in under a second, but not on a machine that does eight at once."""

IMAGE_SECONDS = 900
"""Building the sandbox image the first time, with its downloads."""

GONE_SECONDS = 5.0
"""The bound of promise GONE."""

LEFT_OUT = pytest.StashKey[int]()


@cache
def engine_or_reason() -> Engine | str:
    """Asked once; the answer holds for the whole session."""
    return find_engine()


def _is_plain_run(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not REQUIRED


def _needs_engine(item: pytest.Item) -> bool:
    return item.get_closest_marker("engine") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what lies here, and leave out what a plain run doesn't take."""
    left_out: list[pytest.Item] = []
    for item in [item for item in items if item.path.is_relative_to(HERE)]:
        if item.get_closest_marker("no_engine") is None:
            item.add_marker(pytest.mark.engine)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))
        if _is_plain_run(config) and not _is_in_plain_run(item):
            left_out.append(item)
    if left_out:
        config.stash[LEFT_OUT] = len(left_out)
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _is_in_plain_run(item: pytest.Item) -> bool:
    if item.get_closest_marker("quick") is None:
        return False
    return not _needs_engine(item) or isinstance(engine_or_reason(), Engine)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make the sandbox image before the first test's clock starts."""
    needed = any(map(_needs_engine, session.items)) and not session.config.option.collectonly
    if needed and isinstance(engine_or_reason(), Engine):
        subprocess.run(
            [sys.executable, "-m", "python_exec_sandbox", "run", "-"],
            input=b"print('ready')",
            env={**os.environ, **DOCKER},
            stdout=subprocess.DEVNULL,
            timeout=IMAGE_SECONDS,
            check=False,  # if it can't be made, each test says so in its own words
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself is a failure where everything is required."""
    report = yield
    if REQUIRED and report.outcome == "skipped" and collector.path.is_relative_to(HERE):
        report.outcome = "failed"
        report.longrepr = f"skipped although REQUIRE_INTEGRATION is set: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that is skipped, for whatever reason, is a failure where everything is required."""
    report = yield
    if REQUIRED and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although REQUIRE_INTEGRATION is set: {_reason(report)}"
    return report


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what a plain run left out, why, and how to run it."""
    count = config.stash.get(LEFT_OUT, 0)
    if not count:
        return
    engine = engine_or_reason()
    why = f"{engine}; start one, then" if isinstance(engine, str) else "they take minutes;"
    terminalreporter.write_line(
        f"left out {count} integration tests: {why} run .venv/bin/python -m pytest integration", yellow=True
    )


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The server runs on asyncio alone."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _engine_is_there(request: pytest.FixtureRequest) -> None:
    if _needs_engine(request.node) and isinstance(reason := engine_or_reason(), str):
        pytest.skip(reason)


@pytest.fixture
def engine() -> Engine:
    """The engine that the server finds too."""
    found = engine_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def store(engine: Engine) -> Iterator[str]:
    """The name of a volume of this test's own."""
    with own_store(engine) as name:
        yield name


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    """Both protocol eras: the one with the ``initialize`` handshake, and the stateless one."""
    return str(request.param)


@pytest.fixture
def start_server(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """``async with start_server("--network", "none", mode="auto") as server``; see ``running_server``.

    After the test no container of any server it started may be left.
    """
    pids: list[int] = []

    @asynccontextmanager
    async def start(*flags: str, **options: object) -> AsyncIterator[RunningServer]:
        folder = tmp_path_factory.mktemp("server")
        async with running_server(folder, *flags, **options) as server:  # type: ignore[arg-type]  # passed through
            pids.append(server.pid)
            yield server

    with nothing_left(engine, pids, GONE_SECONDS):
        yield start


@pytest.fixture
def stdio_client(start_server: StartServer, era: str) -> StartServer:
    """As ``start_server``, once in each protocol era."""

    def start(*flags: str, **options: object) -> AbstractAsyncContextManager[RunningServer]:
        return start_server(*flags, mode=era, **options)

    return start


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as it would be published."""
    folder = tmp_path_factory.mktemp("dist")
    uv = Path(sys.executable).with_name("uv")
    built = subprocess.run(
        [uv, "build", "--python", sys.executable, "--out-dir", folder, HERE.parent],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel

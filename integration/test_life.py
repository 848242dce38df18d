"""The server's own life: first answers, ping under load, sudden death beside a sibling."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from docker.models.containers import Container

from integration.support.engine import Engine, left_after, processes_of
from integration.support.servers import RunningServer, StartServer, running_server, text_of
from tests.support.startup import compare

ROUNDS = 7
"""Starts of each server, in turn."""

ALIVE_RATIO = 1.15
"""Promise ALIVE."""

SCRIPTS = 8
PINGS = 40

PING_SECONDS = 0.1
"""Promise ALIVE."""

GONE_AFTER_KILL_SECONDS = 10.0
"""Promise GONE after ``kill -9``: containers end by themselves."""


@pytest.fixture
def hung_engine(tmp_path: Path) -> Iterator[str]:
    """A socket that accepts and never answers."""
    path = tmp_path / "hung.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        yield f"unix://{path}"


@pytest.mark.no_engine
@pytest.mark.parametrize("engine_state", ["no engine", "hung engine"])
def test_the_first_answers_take_hardly_longer_than_a_bare_servers(
    engine_state: str, hung_engine: str, tmp_path: Path
) -> None:
    host = hung_engine if engine_state == "hung engine" else f"unix://{tmp_path}/absent.sock"
    _compare({"DOCKER_HOST": host})


def test_the_first_answers_do_not_wait_for_an_image(engine: Engine) -> None:
    image = "absent.invalid/no-such-image:1"
    _compare(
        {
            "DOCKER_HOST": engine.address,
            "PYTHON_EXEC_SANDBOX_IMAGE": image,
            "PYTHON_EXEC_SANDBOX_PULL_POLICY": "never",
        }
    )


def _compare(environment: dict[str, str]) -> None:
    compared = compare(ROUNDS, os.environ | environment)
    assert compared.ratio <= ALIVE_RATIO, compared


@pytest.mark.anyio
async def test_ping_is_answered_at_once_while_eight_scripts_arrive_and_run(start_server: StartServer) -> None:
    # They compute and print, as scripts do; what a flood of output may cost a ping is bounded in test_cases.
    burn = "while True: print(sum(range(100_000)))"
    async with start_server("--pool-size", "4", "--max-sandboxes", "8", mode="legacy") as server:
        running: set[int] = set()
        ended: set[int] = set()

        async def one(number: int) -> None:
            async def told(progress: float, total: float | None, message: str | None) -> None:
                if (message or "").startswith("running"):
                    running.add(number)

            await server.client.call_tool(
                "execute_python", {"script": burn, "timeout_seconds": 120}, progress_callback=told
            )
            ended.add(number)

        async def pings(count: int) -> float:
            worst = 0.0
            for _ in range(count):
                start = time.perf_counter()
                await server.client.session.send_ping()
                worst = max(worst, time.perf_counter() - start)
                await anyio.sleep(0.02)  # a ping every so often, as an eager keep-alive
            return worst

        await server.execute("print('warm')")
        worst = 0.0
        async with anyio.create_task_group() as tasks:
            for number in range(SCRIPTS):
                tasks.start_soon(one, number)
            with anyio.fail_after(60):
                while len(running) < SCRIPTS:  # four of their sandboxes are still to be made
                    worst = max(worst, await pings(1))
            worst = max(worst, await pings(PINGS))
            tasks.cancel_scope.cancel()
        assert not ended, "they ended before the pings did"
        assert worst < PING_SECONDS


@pytest.mark.anyio
async def test_after_kill_9_the_containers_end_by_themselves_and_a_siblings_run_goes_on(
    engine: Engine, start_server: StartServer, tmp_path: Path
) -> None:
    async with start_server("--pool-size", "1", mode="legacy") as sibling, anyio.create_task_group() as tasks:
        answers: list[str] = []

        async def long_run() -> None:
            answers.append(text_of(await sibling.execute("import time; time.sleep(12); print('unharmed')")))

        tasks.start_soon(long_run)
        killed = await _kill_with_four_busy(engine, tmp_path)
        left = await anyio.to_thread.run_sync(left_after, killed, GONE_AFTER_KILL_SECONDS)
        assert not left
    assert "unharmed" in answers[0]


async def _kill_with_four_busy(engine: Engine, folder: Path) -> list[Container]:
    """Start a server, let four scripts run, kill it; returns the containers it had then."""
    killed: list[Container] = []
    try:
        async with (
            running_server(folder, "--max-sandboxes", "6", mode="legacy") as server,
            anyio.create_task_group() as tasks,
        ):
            for number in range(4):
                tasks.start_soon(_ignore_result, server, number)
            with anyio.fail_after(60):
                while await anyio.to_thread.run_sync(_busy, engine, server.pid) < 4:
                    await anyio.sleep(0.1)  # polls another program
            killed = list(engine.containers_of(server.pid))
            os.kill(server.pid, signal.SIGKILL)
            tasks.cancel_scope.cancel()
    except* Exception:  # noqa: BLE001 - whatever the client's library makes of a dead server
        assert killed, "the server was not killed by this test"
    return killed


async def _ignore_result(server: RunningServer, number: int) -> None:
    await server.execute(f"import subprocess; subprocess.run(['sleep', '300.{number}'])", timeout_seconds=300)


def _busy(engine: Engine, pid: int) -> int:
    return sum("sleep 300." in processes_of(container) for container in engine.containers_of(pid))

"""The server as a process: what ends it, how fast, with which code, and what stays clean."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from tests.support.startup import INITIALIZE, INITIALIZED
from tests.support.wire import FAKE_SERVER, WireServer, call, request, wire_server

GONE_SECONDS = 5.0

# With nothing to wait for the end is a matter of milliseconds; the client's patience is 0.5 s (SIGINT, then
# SIGTERM, then SIGKILL).
PROMPT_SECONDS = 0.5


def close_input(server: WireServer) -> None:
    server.close_input()


def interrupt(server: WireServer) -> None:
    server.process.send_signal(signal.SIGINT)


def terminate(server: WireServer) -> None:
    server.process.send_signal(signal.SIGTERM)


def hang_up(server: WireServer) -> None:
    server.process.send_signal(signal.SIGHUP)


def interrupt_then_terminate(server: WireServer) -> None:
    interrupt(server)
    time.sleep(0.1)  # as a well known client does; at the same instant the kernel delivers them in any order
    terminate(server)


ENDINGS = [
    (close_input, 0),
    (interrupt, 130),
    (terminate, 143),
    (hang_up, 129),
    (interrupt_then_terminate, 130),
]


@pytest.mark.parametrize(("end", "code"), ENDINGS)
def test_it_ends_in_order_and_at_once_while_a_script_runs(
    end: Callable[[WireServer], None], code: int, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    with wire_server(environment={"FAKE_CLOSED": str(closed)}) as server:
        server.send(call(2, "say first"))
        server.answer(2)
        server.send(call(3, "wait 60"))
        server.ask(4, "ping")
        began = time.monotonic()
        end(server)
        assert server.process.wait(GONE_SECONDS) == code
        assert time.monotonic() - began < PROMPT_SECONDS
    assert closed.exists()


@pytest.mark.parametrize(("end", "code"), ENDINGS[:2])
def test_a_backend_that_does_not_close_cannot_keep_it(end: Callable[[WireServer], None], code: int) -> None:
    with wire_server(environment={"FAKE_CLOSE_SECONDS": "60"}) as server:
        server.send(call(2, "say first"))
        server.answer(2)
        end(server)
        assert server.process.wait(GONE_SECONDS) == code


def test_a_signal_during_the_cleanup_does_not_cut_it_short(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    with wire_server(environment={"FAKE_CLOSED": str(closed), "FAKE_CLOSE_SECONDS": "0.5"}) as server:
        server.send(call(2, "say first"))
        server.answer(2)
        interrupt_then_terminate(server)
        interrupt(server)
        assert server.process.wait(GONE_SECONDS) == 130
    assert closed.exists()


def test_a_second_interrupt_after_a_second_ends_it_at_once() -> None:
    with wire_server(environment={"FAKE_CLOSE_SECONDS": "60"}) as server:
        server.send(call(2, "say first"))
        server.answer(2)
        interrupt(server)
        time.sleep(1.2)  # what is tested is that this much time matters
        began = time.monotonic()
        interrupt(server)
        assert server.process.wait(GONE_SECONDS) == 130
        assert time.monotonic() - began < PROMPT_SECONDS


def test_a_client_that_stops_reading_ends_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    with subprocess.Popen(
        FAKE_SERVER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "FAKE_CLOSED": str(closed)},
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            for message in (call(1, "say hello"), call(2, "wait 60")):
                process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            process.stdout.readline()
            process.stdout.close()
            process.stdin.write(json.dumps(request(3, "ping")).encode() + b"\n")
            process.stdin.flush()
            assert process.wait(GONE_SECONDS) == 0
        finally:
            process.kill()


def test_it_ends_with_its_parent_though_its_stdin_stays_open(tmp_path: Path) -> None:
    started = tmp_path / "started"
    parent = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen({list(FAKE_SERVER)!r}, stdin=int(sys.argv[1]), stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    read_end, write_end = os.pipe()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", parent, str(read_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(read_end,),
            env={**os.environ, "FAKE_STARTED": str(started)},
        ) as process:
            assert process.stdout is not None
            server = int(process.stdout.readline())
            lines = (INITIALIZE, INITIALIZED, call(2, "wait 60"))
            os.write(write_end, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            assert _soon(started.exists, 20)
            process.kill()
        assert _soon(lambda: not _runs(server), GONE_SECONDS)
    finally:
        os.close(read_end)
        os.close(write_end)


def _soon(happened: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)  # the process is nobody's child any more, or has no other way to tell
    return happened()


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_it_serves_ends_it_with_the_same_code_and_no_traceback(
    number: signal.Signals,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "python_exec_sandbox", "run", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdin is not None
            assert _soon(lambda: _handles(process.pid, number), 20)
            process.send_signal(number)
            assert process.wait(GONE_SECONDS) == 128 + number
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()


def _handles(process: int, number: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    wanted = 1 << (number - 1) | 1 << (signal.SIGTERM - 1)
    return int(caught.split()[1], 16) & wanted == wanted


def test_the_answer_to_a_client_that_closes_its_end_right_after_it_came_is_whole() -> None:
    with wire_server() as server:
        server.send(call(2, "say " + "x" * 400))
        server.answer(2)
        server.close_input()
        assert server.process.wait(GONE_SECONDS) == 0
        assert server.lines.empty()


def test_stdout_carries_the_protocol_only_whatever_is_printed() -> None:
    with wire_server(stderr=subprocess.PIPE) as server:
        server.send(call(2, "print noise"), call(3, "bytes " + bytes(range(256)).hex()))
        server.answer(2)
        server.send(call(4, "bytes " + "\ud800".encode(errors="surrogatepass").hex()), request(5, "ping"))
        server.answer(5)
        server.close_input()
        server.process.wait(GONE_SECONDS)
        while not server.lines.empty():
            assert json.loads(server.lines.get())["jsonrpc"] == "2.0"
        assert server.process.stderr is not None
        assert b"noise" in server.process.stderr.read()


def test_ping_is_answered_within_a_tenth_of_a_second_while_eight_scripts_run() -> None:
    with wire_server() as server:
        server.send(*(call(number, "wait 60") for number in range(10, 18)))
        server.ask(2, "ping")
        slowest = 0.0
        for number in range(100, 120):
            began = time.monotonic()
            server.ask(number, "ping")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.1


def test_a_cancelled_call_is_not_answered_and_others_are() -> None:
    with wire_server() as server:
        server.send(call(2, "wait 60"))
        server.ask(3, "ping")
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
        server.ask(4, "ping")
        server.close_input()
        server.process.wait(GONE_SECONDS)
        while not server.lines.empty():
            assert json.loads(server.lines.get()).get("id") != 2


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_the_sdks_own_client_is_served_in_both_eras_and_leaves_quickly(era: str) -> None:
    parameters = StdioServerParameters(command=FAKE_SERVER[0], args=list(FAKE_SERVER[1:]), cwd=Path.cwd())
    with anyio.fail_after(30):
        async with Client(parameters, mode=era) as client:
            assert client.protocol_version.startswith("2026" if era == "auto" else "2025")
            result = await client.call_tool("execute_python", {"script": "say hello"})
            assert isinstance(result.content[0], TextContent)
            assert "hello" in result.content[0].text
            left = time.monotonic()
    assert time.monotonic() - left < 2

"""``print('hello')`` on bubblewrap: warm calls and a sustained rate, beside doing the same by hand.

    .venv/bin/python -m integration.benchmarks.native [--rounds 20] [--runs 50]

All rows are measured in the same run, in turn, so that whatever else the machine does weighs on each alike.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from integration.benchmarks.hello import (
    PYTHON,
    SCRIPT,
    SETTLE_SECONDS,
    WARM,
    Row,
    row,
    table,
    timed,
    timed_call,
)
from integration.support.native_servers import native_server
from integration.support.servers import RunningServer
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.bubblewrap.options import BubblewrapOptions

COLD = "bwrap ... uv run on the host"
READY = "a sandbox made"


def cold_command(script: Path) -> list[str]:
    """A sandbox as somebody would make it by hand for one run; uv remembers what it knows of the Python."""
    uv = str(Path(sys.executable).with_name("uv"))
    options = ["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    options += ["--tmpfs", "/mnt", "--bind", str(script.parent), "/mnt"]
    run = [uv, "run", "--quiet", "--no-project", "--offline", "--cache-dir", "/mnt/cache"]
    return ["bwrap", *options, "--", *run, "--python", sys.executable, "/mnt/script.py"]


@asynccontextmanager
async def warm_server() -> AsyncIterator[RunningServer]:
    with tempfile.TemporaryDirectory() as folder:
        async with native_server(Path(folder), "--pool-size", "4", "--max-sandboxes", "8") as server:
            for _ in range(2):
                await timed_call(server)
            await anyio.sleep(SETTLE_SECONDS)
            yield server


async def made(driver: BubblewrapDriver) -> float:
    start = time.perf_counter()
    sandbox = await driver.create("3.13")
    taken = time.perf_counter() - start
    await sandbox.destroy()
    return taken


async def measure(rounds: int, runs: int) -> str:
    seconds: dict[str, list[float]] = {WARM: [], PYTHON: [], COLD: [], READY: []}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(SCRIPT)
        python, cold = [sys.executable, str(script)], cold_command(script)
        async with warm_server() as server, BubblewrapDriver(BubblewrapOptions()) as driver:
            await made(driver)
            timed(cold)
            for _ in range(rounds):
                seconds[WARM].append(await timed_call(server))
                await anyio.sleep(SETTLE_SECONDS)
                seconds[PYTHON].append(await anyio.to_thread.run_sync(timed, python))
                seconds[COLD].append(await anyio.to_thread.run_sync(timed, cold))
                seconds[READY].append(await made(driver))
                await anyio.sleep(SETTLE_SECONDS)
            start = time.perf_counter()
            for _ in range(runs):
                await timed_call(server)
            sustained = runs / (time.perf_counter() - start)
            start = time.perf_counter()
            await anyio.to_thread.run_sync(repeat, lambda: timed(cold), runs)
            by_hand = runs / (time.perf_counter() - start)
    rows: list[Row] = [row(name, values) for name, values in seconds.items()]
    return f"{table(rows)}\n\n{runs} runs back to back: {sustained:.1f} a second; by hand {by_hand:.1f}\n"


def repeat(what: Callable[[], object], times: int) -> None:
    for _ in range(times):
        what()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=50)
    given = parser.parse_args()
    sys.stdout.write(anyio.run(measure, given.rounds, given.runs))


if __name__ == "__main__":
    main()

"""How long ``print('hello')`` takes: a warm call through a real client beside what a person would do without it.

    .venv/bin/python -m integration.benchmarks.hello [--rounds 20] [--json FILE]

All rows are measured in the same run, in turn, so that whatever else the machine does weighs on each alike.
"""

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from integration.support.engine import find_engine, sandbox_image
from integration.support.servers import RunningServer, running_server, text_of

SCRIPT = "print('hello')\n"
SETTLE_SECONDS = 0.6
"""Between two measured calls, as a model thinks between two: the pool makes the next sandbox meanwhile."""

WARM = "warm call through the client"
PYTHON = "python script.py on the host"
UV_RUN = "uv run --script on the host"
DOCKER_RUN = "docker run --rm of the sandbox image"
BURST = "call in a burst of pool size"


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of one way of running the script."""

    name: str
    median: float
    p5: float
    p95: float
    count: int


def row(name: str, seconds: Sequence[float]) -> Row:
    ordered = sorted(1000 * one for one in seconds)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]

    return Row(name, statistics.median(ordered), at(0.05), at(0.95), len(ordered))


def timed(command: Sequence[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    taken = time.perf_counter() - start
    assert done.stdout == b"hello\n", done
    return taken


async def timed_call(server: RunningServer) -> float:
    start = time.perf_counter()
    result = await server.execute(SCRIPT)
    taken = time.perf_counter() - start
    assert "--- stdout ---\nhello\n" in text_of(result), text_of(result)
    return taken


@asynccontextmanager
async def warm_server(pool_size: int) -> AsyncIterator[RunningServer]:
    with tempfile.TemporaryDirectory() as folder:
        async with running_server(
            Path(folder), "--pool-size", str(pool_size), "--max-sandboxes", "8"
        ) as server:
            await server.execute(SCRIPT)  # the image is there from here on
            await anyio.sleep(3)  # the pool is full, and nothing is being made any more
            yield server


async def measure(rounds: int, pool_size: int) -> list[Row]:
    engine = find_engine()
    if isinstance(engine, str):
        raise SystemExit(engine)
    seconds: dict[str, list[float]] = {name: [] for name in (WARM, PYTHON, UV_RUN, DOCKER_RUN, BURST)}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(SCRIPT)
        uv = str(Path(sys.executable).with_name("uv"))
        async with warm_server(pool_size) as server:
            image = sandbox_image(engine)
            others = {
                PYTHON: [sys.executable, str(script)],
                UV_RUN: [uv, "run", "--no-project", "--python", sys.executable, "--script", str(script)],
                DOCKER_RUN: [
                    *(
                        "docker",
                        "run",
                        "--rm",
                        "--network",
                        "none",
                        "--entrypoint",
                        "/opt/sandbox/python",
                        image,
                    ),
                    *("-c", SCRIPT),
                ],
            }
            timed(others[UV_RUN])  # uv asks a Python about itself once
            for _ in range(rounds):
                seconds[WARM].append(await timed_call(server))
                await anyio.sleep(SETTLE_SECONDS)
                for name, command in others.items():
                    seconds[name].append(await anyio.to_thread.run_sync(timed, command))
                await anyio.sleep(SETTLE_SECONDS)
            for _ in range(max(1, rounds // pool_size)):
                await anyio.sleep(3)
                seconds[BURST] += [await timed_call(server) for _ in range(pool_size)]
    return [row(name, values) for name, values in seconds.items()]


def table(rows: Sequence[Row]) -> str:
    warm = next(one for one in rows if one.name == WARM)
    lines = ["| what | median ms | p5 | p95 | warm call / this |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {one.name} | {one.median:.1f} | {one.p5:.1f} | {one.p95:.1f} | {warm.median / one.median:.3f} |"
        for one in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pool-size", type=int, default=4)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = anyio.run(measure, given.rounds, given.pool_size)
    machine = (
        f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    )
    sys.stdout.write(f"{table(rows)}\n\n{machine}\n")
    if given.json:
        given.json.write_text(
            json.dumps({"machine": machine, "rows": [asdict(one) for one in rows]}, indent=1)
        )


if __name__ == "__main__":
    main()

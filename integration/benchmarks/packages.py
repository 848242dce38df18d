"""How long a script that imports pandas takes: a call through a real client beside what a person would do without it.

    .venv/bin/python -m integration.benchmarks.packages [--rounds 15] [--python 3.13] [--host-python PATH]

The environment is built before the clock starts, and so are the host's venv (with bytecode) and uv's cache. All
rows are measured in turn in the same run. ``--host-python`` should be of the same version as ``--python``.
"""

import argparse
import itertools
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from integration.benchmarks.hello import SETTLE_SECONDS, Row, row
from integration.support.servers import RunningServer, running_server, text_of

SCRIPT = "import pandas\nprint(len(pandas.DataFrame({'a': [1, 2]})))\n"
BLOCK = "# /// script\n# dependencies = ['pandas']\n# ///\n"

CALL = "call through the client, environment reused"
VENV = "host's own venv with bytecode"
FRESH = "uv run --script at a fresh path on the host"

AT_MOST_OF_VENV = 1.15
AT_LEAST_FASTER_THAN_FRESH = 4.0


def timed(command: Sequence[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    taken = time.perf_counter() - start
    assert done.stdout == b"2\n", done
    return taken


async def timed_call(server: RunningServer, python: str) -> tuple[float, str]:
    start = time.perf_counter()
    result = await server.execute(SCRIPT, dependencies=["pandas"], python_version=python)
    taken = time.perf_counter() - start
    text = text_of(result)
    assert "--- stdout ---\n2\n" in text, text
    return taken, text


def host_ways(folder: Path, python: str) -> dict[str, Callable[[], float]]:
    """How the script is run on the host; each is tried once, so that uv has what it needs."""
    uv, venv = str(Path(sys.executable).with_name("uv")), folder / "venv"
    script = folder / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([uv, "venv", "-q", "--python", python, venv], check=True)
    install = (
        uv,
        "pip",
        "install",
        "-q",
        "--compile-bytecode",
        "--python",
        venv / "bin" / "python",
        "pandas",
    )
    subprocess.run(install, check=True)
    numbers = itertools.count()

    def fresh() -> float:
        path = folder / f"fresh-{next(numbers)}" / "script.py"
        path.parent.mkdir()
        path.write_text(BLOCK + SCRIPT)
        return timed([uv, "run", "-q", "--python", python, "--script", str(path)])

    ways = {VENV: lambda: timed([str(venv / "bin" / "python"), str(script)]), FRESH: fresh}
    for way in ways.values():
        way()
    return ways


async def measure(rounds: int, python: str, on_host: str) -> list[Row]:
    seconds: dict[str, list[float]] = {name: [] for name in (CALL, VENV, FRESH)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways = await anyio.to_thread.run_sync(host_ways, folder, on_host)
        async with running_server(
            folder, "--pool-size", "2", "--memory", "1GiB", "--python-version", python
        ) as server:
            await timed_call(server, python)
            await anyio.sleep(3)  # the pool is full, and nothing is being made any more
            for _ in range(rounds):
                taken, text = await timed_call(server, python)
                assert "environment: reused" in text, text
                seconds[CALL].append(taken)
                await anyio.sleep(SETTLE_SECONDS)
                for way, run in ways.items():
                    seconds[way].append(await anyio.to_thread.run_sync(run))
                await anyio.sleep(SETTLE_SECONDS)
    return [row(name, values) for name, values in seconds.items()]


def table(rows: Sequence[Row]) -> str:
    medians = {one.name: one.median for one in rows}
    lines = ["| what | median ms | p5 | p95 |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {one.name} | {one.median:.0f} | {one.p5:.0f} | {one.p95:.0f} |" for one in rows]
    beside, faster = medians[CALL] / medians[VENV], medians[FRESH] / medians[CALL]
    lines += [
        "",
        f"call / host's venv: {beside:.2f} (to reach: at most {AT_MOST_OF_VENV})",
        f"fresh uv run / call: {faster:.2f} (to reach: at least {AT_LEAST_FASTER_THAN_FRESH})",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--python", default="3.13")
    parser.add_argument("--host-python", default=sys.executable)
    given = parser.parse_args()
    rows = anyio.run(measure, given.rounds, given.python, given.host_python)
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}"
    sys.stdout.write(f"{table(rows)}\n\n{machine}; Python {given.python}, on the host {given.host_python}\n")


if __name__ == "__main__":
    main()

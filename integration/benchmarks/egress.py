"""What the way through the server costs a script: beside a direct connection on this machine's loopback.

    .venv/bin/python -m integration.benchmarks.egress [--backend docker|native] [--mib 256] [--address 127.0.0.1]

The same script downloads from the same sender twice, in a sandbox through the server and on the host directly. For
the sandbox the sender's address is opened by ``--allow-address``.
"""

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from integration.support.servers import RunningServer, running_server, text_of

MIB = 1024 * 1024
MANY = 20
ROUND_TRIPS = 100

SCRIPT = """
import json, os, socket, statistics, sys, threading, time, urllib.parse

host, port, size, many, trips = "{host}", {port}, {size}, {many}, {trips}
proxy = os.environ.get("HTTPS_PROXY") if {through} else None

def connect():
    if proxy is None:
        return socket.create_connection((host, port))
    place = urllib.parse.urlsplit(proxy)
    way = socket.create_connection((place.hostname, place.port))
    way.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        head += way.recv(1)
    assert head.startswith(b"HTTP/1.1 200"), head
    return way

def download(count):
    way = connect()
    way.sendall(f"{count}\\n".encode())
    got, buffer = 0, bytearray(1 << 18)
    while n := way.recv_into(buffer):
        got += n
    assert got == count, (got, count)

def rate(streams):
    began = time.perf_counter()
    threads = [threading.Thread(target=download, args=(size // streams,)) for _ in range(streams)]
    for one in threads: one.start()
    for one in threads: one.join()
    return size / (time.perf_counter() - began)

def latency():
    taken = []
    for _ in range(trips):
        began = time.perf_counter()
        connect().close()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)

print("RESULT", json.dumps({"one": rate(1), "many": rate(many), "latency": latency()}))
"""

STALLED = """
import os, socket, time, urllib.parse
place = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
ways = []
for _ in range({many}):
    way = socket.create_connection((place.hostname, place.port))
    way.sendall(b"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n1000000000000\\n")
    assert way.recv(10)
    ways.append(way)
time.sleep(5)
"""


async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As many bytes as the first line says."""
    try:
        left = int(await reader.readline() or b"0")
        block = bytes(MIB)
        while left > 0:
            writer.write(block[: min(left, MIB)])
            left -= MIB
            await writer.drain()
    except OSError:
        pass  # a script that was done with it
    finally:
        writer.close()


def resident(pid: int) -> float:
    """MiB of memory that a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def filled(script: str, **values: object) -> str:
    for name, value in values.items():
        script = script.replace("{" + name + "}", str(value))
    return script


def result_in(text: str) -> dict[str, float]:
    (line,) = [line for line in text.splitlines() if line.startswith("RESULT ")]
    return dict(json.loads(line.removeprefix("RESULT ")))


async def by_server(server: RunningServer, script: str) -> dict[str, float]:
    return result_in(text_of(await server.execute(script, timeout_seconds=240)))


async def measure(backend: str, mib: int, host: str) -> str:
    sender = await asyncio.start_server(send, host, 0)
    port = sender.sockets[0].getsockname()[1]
    values = {"host": host, "port": port, "size": mib * MIB, "many": MANY, "trips": ROUND_TRIPS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(filled(SCRIPT, through=False, **values))

        def on_host() -> str:
            return subprocess.run([sys.executable, script], capture_output=True, check=True, text=True).stdout

        direct = result_in(await anyio.to_thread.run_sync(on_host))
        flags = ("--sandbox-backend", backend, "--allow-address", f"{host}/32", "--allow-port", str(port))
        async with running_server(folder, *flags, "--pool-size", "1") as server:
            through = await by_server(server, filled(SCRIPT, through=True, **values))
            before = resident(server.pid)
            await server.execute(filled(STALLED, **values))
            after = resident(server.pid)
    sender.close()
    lines = [
        f"| {backend} | through the server | direct | ratio |",
        "| --- | ---: | ---: | ---: |",
    ]
    for key, words in (("one", "one stream"), ("many", f"{MANY} streams together")):
        lines.append(
            f"| {words}, MiB/s | {through[key] / MIB:.0f} | {direct[key] / MIB:.0f} | {through[key] / direct[key]:.2f} |"
        )
    new, old = through["latency"] * 1000, direct["latency"] * 1000
    lines.append(f"| a connection made, ms | {new:.2f} | {old:.2f} | {new / old:.1f} |")
    lines.append(
        f"\nmemory of the server: {before:.0f} MiB, after {MANY} stalled endless streams {after:.0f} MiB"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("docker", "native"), default="native")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--address", default="127.0.0.1")
    given = parser.parse_args(argv)
    sys.stdout.write(anyio.run(measure, given.backend, given.mib, given.address) + "\n")
    sys.stdout.write(f"\n{platform.system()} {platform.release()}, {platform.machine()}\n")


if __name__ == "__main__":
    main()

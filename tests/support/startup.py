"""How long a server takes from its start to the list of its tools.

``python -m tests.support.startup`` prints the times of ours and of a bare server of the SDK.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BARE = (sys.executable, "-m", "tests.support.bare_server")
OURS = (sys.executable, "-m", "python_exec_sandbox")

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "stopwatch", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds from the start of the process."""

    initialized: float
    listed: float


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Startup:
    """Start ``command``, speak to it as a client does, and end it by closing its stdin."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(*messages: object) -> None:
            assert process.stdin is not None
            process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
            process.stdin.flush()

        send(INITIALIZE)
        assert json.loads(process.stdout.readline())["id"] == 1
        initialized = time.perf_counter() - began
        send(INITIALIZED, LIST_TOOLS)
        assert json.loads(process.stdout.readline())["result"]["tools"]
        listed = time.perf_counter() - began
        process.stdin.close()
        try:
            process.wait(10)
        finally:
            process.kill()
    return Startup(initialized, listed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The best times of both, measured in turn: whatever else a machine does only ever adds to a time."""

    bare: Startup
    ours: Startup

    @property
    def ratio(self) -> float:
        """The worse of the two: ours over the bare one's."""
        return max(self.ours.initialized / self.bare.initialized, self.ours.listed / self.bare.listed)


def compare(rounds: int = 5, environment: Mapping[str, str] | None = None) -> Comparison:
    """``rounds`` starts of each, one of each unmeasured before."""
    measure(BARE)
    measure(OURS, environment)
    pairs = [(measure(BARE), measure(OURS, environment)) for _ in range(rounds)]
    return Comparison(_best([bare for bare, _ in pairs]), _best([ours for _, ours in pairs]))


def _best(startups: Sequence[Startup]) -> Startup:
    return Startup(
        min(one.initialized for one in startups),
        min(one.listed for one in startups),
    )


if __name__ == "__main__":
    compared = compare(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    for name, startup in (("bare", compared.bare), ("ours", compared.ours)):
        sys.stdout.write(
            f"{name}: initialize {startup.initialized:.3f} s, tools/list {startup.listed:.3f} s\n"
        )
    sys.stdout.write(f"ratio: {compared.ratio:.3f} (at most 1.15)\n")

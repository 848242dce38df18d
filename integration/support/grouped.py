"""``python -m integration.support.grouped SCENARIO``: a server's part, in a process that may be moved or killed.

Claims groups as the server does, plays the scenario and prints what came of it as one line of JSON.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Group, Groups
from python_exec_sandbox.drivers.bubblewrap.cgroup.claim import claim_groups
from python_exec_sandbox.drivers.identity import own_identity
from python_exec_sandbox.model.limits import MIB, SandboxLimits

LIMITS = SandboxLimits(memory_bytes=48 * MIB, cpus=0.5, processes=64)
SECONDS = 20

ENTER = 'for entrance in "$@"; do echo 0 > "$entrance" || exit 99; done; exec "$PYTHON" -c "$CODE"'

HUNGRY = "import os; os.write(1, b'started\\n'); hoard = bytearray(200 * 2**20); os.write(1, b'fed\\n')"
MANY = """
import os, time
refused = 0
for _ in range(100):
    try:
        if os.fork() == 0:
            time.sleep(60)
    except BlockingIOError:
        refused += 1
print(refused, flush=True)
time.sleep(60)
"""
BOMB = """
import os
print("lit", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
BUSY = (
    "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
)
SLEEPER = "import time; print('asleep', flush=True); time.sleep(60)"


def start(group: Group, code: str) -> subprocess.Popen[str]:
    """A Python that is inside from its first instruction on."""
    return subprocess.Popen(
        ["/bin/sh", "-c", ENTER, "sh", *map(str, group.entrances)],
        env={"PYTHON": sys.executable, "CODE": code},
        stdout=subprocess.PIPE,
        text=True,
    )


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def memory(groups: Groups) -> dict[str, object]:
    group = groups.open(LIMITS)
    child = start(group, HUNGRY)
    printed, code = child.communicate(timeout=SECONDS)[0], child.returncode
    usage = group.usage()
    group.remove()
    return {"printed": printed.split(), "code": code, **asdict(usage)}


def processes(groups: Groups) -> dict[str, object]:
    group = groups.open(LIMITS)
    child = start(group, MANY)
    seen, usage = int(line(child)), group.usage()
    group.remove()
    return {"refused": seen, **asdict(usage), "code": child.wait(SECONDS)}


def bomb(groups: Groups) -> dict[str, object]:
    group = groups.open(LIMITS)
    child = start(group, BOMB)
    line(child)
    while group.usage().refused_forks == 0:
        time.sleep(0.01)  # until it is at its limit; the test's own time-out bounds it
    inside = len(group.entrances[0].read_text(encoding="utf-8").split())
    started = time.monotonic()
    group.kill()
    seconds = time.monotonic() - started
    left = group.entrances[0].read_text(encoding="utf-8").split()
    group.remove()
    return {"inside": inside, "seconds": seconds, "left": left, "code": child.wait(SECONDS)}


def cpu(groups: Groups) -> dict[str, object]:
    group = groups.open(LIMITS)
    used = float(line(child := start(group, BUSY)))
    child.wait(SECONDS)
    group.remove()
    return {"cpu_seconds": used}


def abandon(groups: Groups) -> dict[str, object]:
    group = groups.open(LIMITS)
    line(start(group, SLEEPER))
    print(json.dumps({"entrances": list(map(str, group.entrances))}), flush=True)
    time.sleep(SECONDS)  # to be killed here
    return {}


def sweep(groups: Groups) -> dict[str, object]:
    return {"swept": groups.sweep()}


def added(groups: Groups) -> dict[str, object]:
    group = groups.open(LIMITS)
    child = subprocess.Popen(["sleep", "60"])
    group.add(child.pid)
    inside = [path.read_text(encoding="utf-8").split() == [str(child.pid)] for path in group.entrances]
    group.remove()
    there = [path.exists() for path in group.entrances]
    return {"inside": inside, "there": there, "code": child.wait(SECONDS)}


SCENARIOS: dict[str, Callable[[Groups], dict[str, object]]] = {
    each.__name__: each for each in (memory, processes, bomb, cpu, abandon, sweep, added)
}


def main(name: str) -> None:
    groups = claim_groups(own_identity())
    if groups.kind == "no control groups":
        print(json.dumps({"none": groups.effective[0].reason}))
        return
    before = time.monotonic()
    answer = SCENARIOS[name](groups)
    groups.close()
    print(json.dumps({"kind": groups.kind, "took": time.monotonic() - before, **answer}))


if __name__ == "__main__":
    assert Path("/proc").exists() and os.name == "posix"
    main(sys.argv[1])

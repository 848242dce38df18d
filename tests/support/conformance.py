"""What any driver must show: one list of behaviours, run against each.

A behaviour is a script, what may be said of its run, and for the fake driver the scene that its runner plays.
The attacks have no scene: they need a kernel, and a runner that is another party than the script.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from python_exec_sandbox.drivers.base import Connection, Driver
from python_exec_sandbox.model.job import Job
from python_exec_sandbox.model.limits import RunLimits, SandboxLimits
from python_exec_sandbox.model.result import OutputStream, Phase, RunReport, Verdict
from python_exec_sandbox.run.verdict import Judged, judge
from tests.support.fake_driver import Scene, Stage, play, until_stopped

DEFAULT_PYTHON = "3.13"


@dataclass
class Outcome:
    """What one run gave, with the driver that ran it."""

    driver: str
    report: RunReport
    judged: Judged
    stdout: bytes
    stderr: bytes
    seconds: float
    phases: list[Phase]
    alive_after: bool

    def __str__(self) -> str:
        return f"on {self.driver}: {self.report}\nstdout: {self.stdout[-2000:]!r}\nstderr: {self.stderr[-2000:]!r}"


@dataclass(frozen=True)
class Behaviour:
    """``expect`` raises AssertionError when the outcome isn't right; ``within`` bounds the run in seconds."""

    name: str
    script: str
    expect: Callable[[Outcome], None]
    scene: Scene | None = None
    run_seconds: float = 15.0
    within: float = 20.0
    output_bytes: int = 1024**3
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    python: str = DEFAULT_PYTHON
    limits: SandboxLimits = field(default_factory=SandboxLimits)


class _Watcher:
    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.data = {stream: bytearray() for stream in OutputStream}

    async def serve(self, connection: Connection) -> None: ...

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    async def output(self, stream: OutputStream, data: bytes) -> None:
        self.data[stream] += data


async def observe(driver: Driver, behaviour: Behaviour, *, instead: str = DEFAULT_PYTHON) -> Outcome:
    """Run the behaviour's script in a new sandbox of ``driver``, which is destroyed afterwards.

    ``instead`` is the Python to take where a behaviour names none and the driver may not have 3.13.
    """
    python = instead if behaviour.python == DEFAULT_PYTHON else behaviour.python
    limits = RunLimits(behaviour.run_seconds, output_bytes=behaviour.output_bytes)
    job = Job("run", behaviour.script.encode(), python, limits, (), behaviour.args, behaviour.stdin)
    watcher = _Watcher()
    sandbox = await driver.create(instead)
    try:
        start = anyio.current_time()
        with anyio.fail_after(behaviour.within):
            report = await sandbox.run(job, watcher)
        seconds = anyio.current_time() - start
        return Outcome(
            driver.name,
            report,
            judge(report, limits, behaviour.limits),
            bytes(watcher.data[OutputStream.STDOUT]),
            bytes(watcher.data[OutputStream.STDERR]),
            seconds,
            watcher.phases,
            sandbox.alive,
        )
    finally:
        with anyio.fail_after(10, shield=True):
            await sandbox.destroy()


def ends(
    verdict: Verdict,
    *,
    stdout: bytes | None = None,
    stdout_has: bytes | None = None,
    stderr: bytes | None = None,
    stderr_has: bytes | None = None,
    code: int | None = None,
    signal: int | None = None,
) -> Callable[[Outcome], None]:
    """An expectation of verdict, output and exit; a sandbox is never alive after its run."""

    def check(outcome: Outcome) -> None:
        assert outcome.judged.verdict is verdict, str(outcome)
        assert stdout is None or outcome.stdout == stdout, str(outcome)
        assert stdout_has is None or stdout_has in outcome.stdout, str(outcome)
        assert stderr is None or outcome.stderr == stderr, str(outcome)
        assert stderr_has is None or stderr_has in outcome.stderr, str(outcome)
        assert code is None or outcome.report.exit_code == code, str(outcome)
        assert signal is None or outcome.report.signal == signal, str(outcome)
        assert not outcome.alive_after, str(outcome)

    return check


def _echo_stdin() -> Scene:
    async def scene(stage: Stage) -> None:
        await play(f"{len(stage.stdin)}\n".encode())(stage)

    return scene


def _echo_args() -> Scene:
    async def scene(stage: Stage) -> None:
        await play(f"{stage.job['args']!r}\n".encode())(stage)

    return scene


def _output_limit() -> Scene:
    async def scene(stage: Stage) -> None:
        await stage.running()
        await stage.output(2, b"x" * 65536 * 4)
        await stage.exit(reason="output_limit")

    return scene


def _quick(check: Callable[[Outcome], None], seconds: float) -> Callable[[Outcome], None]:
    def both(outcome: Outcome) -> None:
        check(outcome)
        assert outcome.seconds < seconds, str(outcome)

    return both


PLAIN = [
    Behaviour(
        "prints", "print('hello')", ends(Verdict.OK, stdout=b"hello\n", stderr=b"", code=0), play(b"hello\n")
    ),
    Behaviour(
        "keeps stderr apart",
        "import sys; print('o'); print('e', file=sys.stderr)",
        ends(Verdict.OK, stdout=b"o\n", stderr=b"e\n"),
        play(b"o\n", b"e\n"),
    ),
    *[
        Behaviour(
            f"exit code {code} is the script's own",
            f"import sys; print('x'); sys.exit({code})",
            ends(Verdict.FAILED, stdout=b"x\n", code=code),
            play(b"x\n", code=code),
        )
        for code in (1, 2, 3, 124, 125, 126, 127, 137, 143, 255)
    ],
    *[
        Behaviour(
            f"signal {number} is told from exit code {128 + number}",
            f"import os; os.kill(os.getpid(), {number})",
            ends(Verdict.SIGNALLED, signal=number),
            play(signal=number),
        )
        for number in (1, 9, 11, 15)
    ],
    Behaviour(
        "sys.exit with a text prints it and exits 1",
        "import sys; sys.exit('a text')",
        ends(Verdict.FAILED, stderr=b"a text\n", code=1),
        play(b"", b"a text\n", code=1),
    ),
    Behaviour(
        "stdin is empty when none was given",
        "import sys; print(len(sys.stdin.read()))",
        ends(Verdict.OK, stdout=b"0\n"),
        _echo_stdin(),
    ),
    Behaviour(
        "stdin of 5 MB arrives",
        "import sys; print(len(sys.stdin.buffer.read()))  # 5 MB",
        ends(Verdict.OK, stdout=b"5242880\n"),
        _echo_stdin(),
        stdin=b"i" * (5 << 20),
    ),
    Behaviour(
        "stdin that nobody reads does no harm",
        "print('never read')",
        ends(Verdict.OK, stdout=b"never read\n"),
        play(b"never read\n"),
        stdin=b"i" * (5 << 20),
    ),
    Behaviour(
        "arguments arrive as they are",
        "import sys; print(sys.argv[1:])",
        ends(Verdict.OK, stdout="['a b', 'ü', '']\n".encode()),
        _echo_args(),
        args=("a b", "ü", ""),
    ),
    Behaviour(
        "10 MB of output arrive whole",
        "import sys; sys.stdout.write('x' * 10_000_000)",
        ends(Verdict.OK, stdout=b"x" * 10_000_000),
        play(b"x" * 10_000_000),
    ),
    Behaviour(
        "binary output arrives as it is",
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300); sys.stderr.buffer.write(bytes(range(256)))",
        ends(Verdict.OK, stdout=bytes(range(256)) * 300, stderr=bytes(range(256))),
        play(bytes(range(256)) * 300, bytes(range(256))),
    ),
    Behaviour(
        "output right before the end is complete",
        "import os; os.write(1, b'y' * 1_000_000); os._exit(0)",
        ends(Verdict.OK, stdout=b"y" * 1_000_000),
        play(b"y" * 1_000_000),
    ),
    Behaviour(
        "a time-out keeps what was printed",
        "import time\nprint('step one')\nprint('step two', end='')\nwhile True: time.sleep(0.2)",
        _quick(ends(Verdict.TIMED_OUT, stdout=b"step one\nstep two"), 4),
        until_stopped(b"step one\nstep two"),
        run_seconds=1,
    ),
    Behaviour(
        "a time-out ends a script that ignores signals",
        "import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except OSError: pass\nprint('deaf')\nwhile True: time.sleep(0.2)",
        _quick(ends(Verdict.TIMED_OUT, stdout=b"deaf\n"), 4),
        until_stopped(b"deaf\n"),
        run_seconds=1,
    ),
    Behaviour(
        "too much output ends the run",
        "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        ends(Verdict.OUTPUT_LIMIT, stdout_has=b"x" * 65536),
        _output_limit(),
        output_bytes=200_000,
    ),
]

_REAL = [
    Behaviour(
        "a memory kill is told from kill -9",
        "print('before')\nkeep = []\nwhile True: keep.append(bytearray(10_000_000))",
        ends(Verdict.OUT_OF_MEMORY, stdout=b"before\n"),
    ),
    Behaviour(
        "a memory kill of a child under exit 0 is told too",
        "import os, sys\nif os.fork() == 0:\n    keep = []\n    while True: keep.append(bytearray(10_000_000))\n"
        "os.wait(); print('parent goes on')",
        ends(Verdict.OUT_OF_MEMORY, stdout=b"parent goes on\n"),
    ),
    Behaviour(
        "double-forked children that ignore signals are gone when the script ends",
        "import os, signal, sys, time\nr, w = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        "        os.write(w, b'x')\n        while True: time.sleep(1)\n    os._exit(0)\n"
        "os.read(r, 1)\nprint('parent')",
        _quick(ends(Verdict.OK, stdout=b"parent\n", code=0), 3),
    ),
    Behaviour(
        "a grandchild that holds the pipe doesn't hold the answer",
        "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\nprint('printed')\ntime.sleep(60)",
        _quick(ends(Verdict.TIMED_OUT, stdout=b"printed\n"), 4),
        run_seconds=1,
    ),
    Behaviour(
        "too many processes are a process limit",
        "import os, time\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n"
        "except OSError: raise SystemExit('no more')",
        ends(Verdict.PROCESS_LIMIT, stderr=b"no more\n"),
    ),
    Behaviour(
        "a fork bomb ends at a limit",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        lambda outcome: _one_of(outcome, Verdict.TIMED_OUT, Verdict.OUT_OF_MEMORY),
        run_seconds=3,
    ),
    Behaviour(
        "a full disk is said",
        "f = open('big', 'wb')\nwhile True: f.write(b'x' * 1_000_000)",
        ends(Verdict.DISK_FULL, stderr_has=b"No space left on device"),
    ),
    Behaviour(
        "the script was started by uv run with the interpreter asked for",
        "import os, sys\nprint(os.path.basename(os.environ['UV']), os.environ['UV_RUN_RECURSION_DEPTH'], sys.version_info[:2])",
        ends(Verdict.OK, stdout=b"uv 1 (3, 13)\n"),
    ),
    *[
        Behaviour(
            f"Python {python} runs when it is asked for",
            "import sys; print('%d.%d' % sys.version_info[:2])",
            ends(Verdict.OK, stdout=f"{python}\n".encode()),
            python=python,
        )
        for python in ("3.13", "3.14", "3.15")
    ],
    Behaviour(
        "the script has no privilege left",
        "import os\nstatus = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines())\n"
        "print(os.getuid() != 0, [status[k].strip() for k in ('CapEff', 'CapPrm', 'CapInh', 'CapAmb')],"
        " status['NoNewPrivs'].strip(), status['Seccomp'].strip())",
        ends(
            Verdict.OK,
            stdout=b"True ['0000000000000000', '0000000000000000', '0000000000000000', '0000000000000000'] 1 2\n",
        ),
    ),
    Behaviour(
        "the system can't be written to",
        "import errno\nfor path in ('/usr/x', '/etc/x', '/x', '/opt/x', '/opt/sandbox/x', '/run/x', '/var/x', '/proc/sys/kernel/core_pattern'):\n"
        "    try: open(path, 'w'); print('wrote', path)\n    except OSError as e: assert e.errno in (errno.EROFS, errno.EACCES, errno.ENOENT), (path, e)",
        ends(Verdict.OK, stdout=b"", stderr=b""),
    ),
    Behaviour(
        "/dev/stdout, temporary files and shared memory work",
        "import multiprocessing as mp, tempfile\nfrom multiprocessing import shared_memory\nopen('/dev/stdout', 'w').write('direct\\n')\n"
        "with tempfile.NamedTemporaryFile() as f: f.write(b'x')\n"
        "s = shared_memory.SharedMemory(create=True, size=8 << 20); s.buf[:4] = b'abcd'; print(bytes(s.buf[:4])); s.close(); s.unlink()\n"
        "print(mp.Lock().acquire())",
        ends(Verdict.OK, stdout=b"direct\nb'abcd'\nTrue\n", stderr=b""),
    ),
    Behaviour(
        "nothing of the server's environment is in any process",
        "import os\nfound = [p for p in os.listdir('/proc') if p.isdigit()]\nseen = b''\n"
        "for p in found:\n    try: seen += open(f'/proc/{p}/environ', 'rb').read()\n    except OSError: pass\n"
        "print(b'CONFORMANCE_SECRET' in seen, b'CONFORMANCE_SECRET' in repr(os.environ).encode())",
        ends(Verdict.OK, stdout=b"False False\n"),
    ),
]


def _one_of(outcome: Outcome, *verdicts: Verdict) -> None:
    assert outcome.judged.verdict in verdicts, str(outcome)


_RUNNER = "import os, sys\nRUNNER = 1\n"
"""The runner's pid as the script sees it: PID 1 of the sandbox's namespace."""


def _attack(name: str, body: str, expect: Callable[[Outcome], None] | None = None, **more: Any) -> Behaviour:
    """An attack on the runner; unless said otherwise the run must end as if nothing had happened."""
    return Behaviour(
        f"attack: {name}",
        _RUNNER + body + "\nprint('survived')\nsys.exit(7)\n",
        expect or ends(Verdict.FAILED, stdout_has=b"survived\n", code=7),
        **more,
    )


ATTACKS = [
    _attack(
        "every resource limit of the runner",
        "import resource\nfor limit in range(16):\n    try: resource.prlimit(RUNNER, limit, (0, 0)); print('limited', limit)\n"
        "    except PermissionError: pass",
        ends(Verdict.FAILED, stdout=b"survived\n", code=7),
    ),
    _attack(
        "every signal to the runner",
        "import signal\nfor number in range(1, 65):\n    try: os.kill(RUNNER, number); print('sent', number)\n    except PermissionError: pass",
        ends(Verdict.FAILED, stdout=b"survived\n", code=7),
    ),
    _attack(
        "SIGSTOP, SIGINT and SIGTERM to everybody",
        "import signal\nfor number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSTOP):\n    try: os.kill(-1, number)\n    except ProcessLookupError: pass",
    ),
    _attack(
        "SIGKILL to everybody",
        "import signal\ntry: os.kill(-1, signal.SIGKILL)\nexcept ProcessLookupError: pass",
    ),
    _attack(
        "ptrace of the runner",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor request in (16, 0x4206):\n"
        "    print('ptrace', libc.ptrace(request, RUNNER, 0, 0))",
        ends(Verdict.FAILED, stdout=b"ptrace -1\nptrace -1\nsurvived\n", code=7),
    ),
    _attack(
        "reading the runner's memory, descriptors and environment",
        "for name in ('mem', 'maps', 'environ', 'fd/0', 'fd/1', 'auxv', 'stack', 'syscall', 'io'):\n"
        "    try: open(f'/proc/{RUNNER}/{name}', 'rb').read(1); print('read', name)\n    except OSError: pass\n"
        "try: print(os.listdir(f'/proc/{RUNNER}/fd'))\nexcept OSError: pass\n"
        "for name in ('root', 'cwd', 'exe'):\n    try: print(os.readlink(f'/proc/{RUNNER}/{name}'))\n    except OSError: pass",
        ends(Verdict.FAILED, stdout=b"survived\n", code=7),
    ),
    _attack(
        "writing the runner's memory",
        "for name in ('mem', 'oom_score_adj', 'clear_refs', 'coredump_filter', 'comm', 'timerslack_ns', 'sched'):\n"
        "    try: open(f'/proc/{RUNNER}/{name}', 'r+b', buffering=0).write(b'1'); print('wrote', name)\n    except OSError: pass",
        ends(Verdict.FAILED, stdout=b"survived\n", code=7),
    ),
    _attack(
        "process_vm_readv and pidfd_getfd on the runner",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall.restype = ctypes.c_long\nbuffer = ctypes.create_string_buffer(64)\n"
        "class iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]\n"
        "local = iovec(ctypes.addressof(buffer), 64); remote = iovec(0x400000, 64)\n"
        "number = {'x86_64': 310, 'aarch64': 270}[os.uname().machine]\n"
        "print(libc.syscall(number, RUNNER, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))\n"
        "fd = os.pidfd_open(RUNNER)\nprint(libc.syscall(438, fd, 0, 0))",
        ends(Verdict.FAILED, stdout=b"-1\n-1\nsurvived\n", code=7),
    ),
    _attack(
        "forged frames on every descriptor",
        "import json, struct\ndef frame(kind, stream, data): return struct.pack('>BBHI', kind, 0, stream, len(data)) + data\n"
        "forged = frame(3, 2, b'') + frame(3, 3, b'') + frame(1, 0, json.dumps({'type': 'exit', 'reason': 'exited', 'code': 0, 'signal': None,"
        " 'notes': '', 'warm': True, 'usage': {'run_seconds': 0, 'install_seconds': 0, 'cpu_seconds': 0, 'peak_memory_bytes': 0,"
        " 'memory_kills': 0, 'process_refusals': 0, 'full_paths': []}}).encode())\n"
        "for fd in range(256):\n    try: os.write(fd, forged)\n    except OSError: pass",
    ),
    _attack(
        "closing every descriptor",
        "os.closerange(0, 4096)\nos._exit(7)",
        ends(Verdict.FAILED, stdout=b"", code=7),
    ),
    _attack(
        "priority and memory-killer games",
        "for call in (lambda: os.setpriority(os.PRIO_PROCESS, RUNNER, 19), lambda: os.sched_setaffinity(RUNNER, {0}),\n"
        "             lambda: os.sched_setscheduler(RUNNER, os.SCHED_IDLE, os.sched_param(0))):\n"
        "    try: call(); print('changed')\n    except PermissionError: pass\n"
        "try: open('/proc/self/oom_score_adj', 'wb', buffering=0).write(b'-1000'); print('lowered')\nexcept OSError: pass",
        ends(Verdict.FAILED, stdout=b"survived\n", code=7),
    ),
    _attack(
        "memory that no process owns, so that the kernel picks the runner",
        "import ctypes\ntry: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass\nprint('filling', flush=True)\n"
        "fd = os.memfd_create('bomb')\nblock = b'x' * (1 << 20)\nwhile True: os.write(fd, block)",
        ends(Verdict.OUT_OF_MEMORY, stdout_has=b"filling\n"),
    ),
    _attack(
        "the end of every process but one of a tree that took the memory",
        "try: open('/proc/self/oom_score_adj', 'w').write('0')\nexcept OSError: pass\nfd = os.memfd_create('bomb')\n"
        "for _ in range(60):\n    if os.fork() == 0:\n        import time; time.sleep(60)\nblock = b'x' * (1 << 20)\nwhile True: os.write(fd, block)",
        ends(Verdict.OUT_OF_MEMORY),
    ),
    _attack(
        "asking the runner to trace",
        "import ctypes, subprocess\nctypes.CDLL(None).ptrace(0, 0, 0, 0)  # a filter may refuse it\nsubprocess.run(['true'])\n"
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('signal arrived')); os.kill(os.getpid(), signal.SIGUSR1)",
        ends(Verdict.FAILED, stdout=b"signal arrived\nsurvived\n", code=7),
    ),
    _attack(
        "so much mapped that the end of it takes the kernel seconds",
        "import ctypes, time\nfd = os.open('/dev/shm/f', os.O_RDWR | os.O_CREAT); os.write(fd, bytes(45 << 20))\n"
        "l = ctypes.CDLL(None); l.mmap.restype = ctypes.c_void_p\n"
        "l.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n"
        "for i in range(100):\n    if os.fork() == 0:\n        for k in range(150): l.mmap(None, 45 << 20, 3, 0x8001, fd, 0)\n"
        "        time.sleep(60)\ntime.sleep(6)",
        run_seconds=20.0,
        within=30.0,
    ),
    _attack(
        "a great many orphans",
        "for _ in range(3000):\n    pid = os.fork()\n    if pid == 0:\n        if os.fork() == 0: os._exit(0)\n        os._exit(0)\n    os.waitpid(pid, 0)",
        run_seconds=60.0,
        within=70.0,
    ),
    _attack(
        "the script's own file and folder pulled away",
        "import shutil\nfor name in os.listdir('/work'): os.unlink(os.path.join('/work', name))\nos.symlink('/etc/passwd', '/work/script.py')",
    ),
]

BEHAVIOURS = [*PLAIN, *_REAL, *ATTACKS]
"""The whole list. A driver that can't show one declares it as a difference, with the reason."""

FAKE_DIFFERENCES = {
    behaviour.name: "the fake runs no process and has no kernel below it"
    for behaviour in BEHAVIOURS
    if behaviour.scene is None
}


def shown_by(differences: dict[str, str]) -> list[Behaviour]:
    """The behaviours a driver with these declared differences must show."""
    unknown = differences.keys() - {behaviour.name for behaviour in BEHAVIOURS}
    assert not unknown, f"differences of no behaviour: {unknown}"
    return [behaviour for behaviour in BEHAVIOURS if behaviour.name not in differences]


def scenes() -> dict[str, Scene]:
    """What the fake's runner plays, by script."""
    return {behaviour.script: behaviour.scene for behaviour in BEHAVIOURS if behaviour.scene is not None}

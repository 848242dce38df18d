"""Names of the signals of Linux, where every script runs; the server's own system may number them otherwise."""

_NAMES = (
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
)

_MEANINGS = {
    "SIGKILL": "It was killed from inside the sandbox, or by the kernel.",
    "SIGSEGV": "Native code accessed memory it must not; an extension module or ctypes is the likely cause.",
    "SIGBUS": "Native code accessed memory that has no backing; a full /dev/shm or a cut mapped file can be the cause.",
    "SIGABRT": "Native code gave up (abort); its message, if any, is in stderr.",
    "SIGILL": "Native code has an instruction this processor doesn't know.",
    "SIGFPE": "Native code divided by zero or the like.",
    "SIGSYS": "It made a system call that the sandbox forbids.",
    "SIGXCPU": "It set itself a limit of CPU time and met it.",
    "SIGXFSZ": "It set itself a limit of file size and met it.",
}


def signal_name(number: int) -> str:
    """Such as ``"SIGKILL"``; ``"signal 64"`` for those without a name."""
    return _NAMES[number - 1] if 1 <= number <= len(_NAMES) else f"signal {number}"


def signal_meaning(number: int) -> str:
    """A sentence on the likely cause, or nothing."""
    return _MEANINGS.get(signal_name(number), "")

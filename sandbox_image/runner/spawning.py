"""What a forked child does before it becomes another program."""

import signal

_RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGCHLD,
)
"""Dispositions that an ignoring parent would hand down through exec."""


def reset_signals() -> None:
    """Back to the dispositions and the mask that programs expect."""
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def prefer_as_victim() -> None:
    """Let the kernel's memory killer take the script before the runner; must come before a change of user."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        return  # the counters and the driver still tell a memory kill

"""What a script that runs on the machine itself is spared, said plainly. Pure."""

import sys

NOT_SANDBOXED = "not sandboxed"
"""The words that stand in every answer."""

_EVERYWHERE = (
    "the script has all rights of the user who runs the server: files, processes, network, credentials",
    "memory is limited for each process by itself (RLIMIT_DATA), not for all together",
    "a file can't grow beyond --disk; how many there are is not limited",
    "--cpus limits the processor time of each process, not how many processors are used",
    "--network none can't be kept and is refused",
    "packages lie in uv's cache, which the user's other projects share and which a script can change",
)
_LINUX = (
    "--pids counts on top of the processes the user has already, and not at all for root",
    "a script that ends its supervisor and changes HOME for its children can leave them behind",
)
_ELSEWHERE = (
    "a process that leaves the script's process group outlives the run",
    "death by signal N can't be told from exit code 128+N",
    "--pids is not limited, and --memory only as far as the system keeps RLIMIT_DATA",
)


def known_differences(platform: str = sys.platform) -> tuple[str, ...]:
    """One clause each, without a full stop; for ``check_environment`` and the manual."""
    return (*_EVERYWHERE, *(_LINUX if platform == "linux" else _ELSEWHERE))

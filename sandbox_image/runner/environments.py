"""Environments of the store, as a sandbox uses them."""

import fcntl
import os

from .identity import Identity

MAX_FACTS_BYTES = 64 * 1024
"""uv's answer about one Python has two thousand bytes."""


def enter(environment: str, cache: str, identity: Identity) -> bool:
    """Keep the environment from being removed as long as this process lives, and let uv know what the builder
    learned of its Python: asking again takes 40 ms and more.

    ``False`` when the environment isn't there (any more).
    """
    store, name = os.path.dirname(os.path.dirname(environment)), os.path.basename(environment)
    if not _hold(os.path.join(store, "leases", name)):
        return False
    if not os.path.exists(os.path.join(environment, "bin", "python")):
        return False
    facts = os.path.join(store, "facts", name)
    for folder, _, files in os.walk(facts):
        target = os.path.normpath(os.path.join(cache, os.path.relpath(folder, facts)))
        for file in files:
            with open(os.path.join(folder, file), "rb") as source:
                data = source.read(MAX_FACTS_BYTES)
            with identity.assumed():
                _put(target, file, data)
    return True


def _hold(lease: str) -> bool:
    """Lock the file ``lease`` for the rest of this process's life; ``False`` when it is gone or going.

    The kernel ends that with the process, however it ends. A lock needs no right to write.
    """
    try:
        fd = os.open(lease, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    return True


def _put(folder: str, name: str, data: bytes) -> None:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)

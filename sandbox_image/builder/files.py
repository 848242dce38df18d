"""Files that are whole or not there, and locks that end with their holder."""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator

MAX_RECORD_BYTES = 8 * 1024 * 1024
"""The lock of a thousand packages has half a megabyte."""

PART = ".part"


def write_record(path: str, record: dict[str, object]) -> None:
    """Put ``record`` at ``path``, replacing what is there; a reader sees the old one or the new one."""
    temporary = f"{path}.{secrets.token_hex(8)}{PART}"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(temporary, path)
    except BaseException:  # whatever ends it leaves no part behind
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def read_record(path: str) -> dict[str, object] | None:
    """The record at ``path``; ``None`` when there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


@contextlib.contextmanager
def held(path: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file ``path``, which is removed afterwards; ``on_wait`` is called before a wait.

    The kernel gives it up with the process that holds it, however that ends.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _locked(fd):
                on_wait()
                fcntl.flock(fd, fcntl.LOCK_EX)
            if not _is_still_at(fd, path):  # its last holder removed it between our open and our lock
                continue
            try:
                yield
            finally:
                os.unlink(path)
            return
        finally:
            os.close(fd)


@contextlib.contextmanager
def shared(path: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file ``path`` beside others that hold it so; the file stays."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(fd, fcntl.LOCK_SH):
            on_wait()
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def alone(path: str) -> Iterator[bool]:
    """Whether nobody holds the lock file ``path``; if so it is held meanwhile. The file stays."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _locked(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def left_behind(path: str) -> Iterator[bool]:
    """Whether nobody holds the lock file ``path``; if so it is held meanwhile, and removed afterwards."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        if not _locked(fd) or not _is_still_at(fd, path):
            yield False
            return
        yield True
        os.unlink(path)
    finally:
        os.close(fd)


def _locked(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False

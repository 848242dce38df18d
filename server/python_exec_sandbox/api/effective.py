"""The limits that hold, in words for a model."""

from python_exec_sandbox.run.units import show_bytes
from python_exec_sandbox.settings import Settings


def limits_in_words(settings: Settings) -> str:
    """Such as ``512 MiB memory, 1 processor, 128 processes, 256 MiB disk (...)``, as the settings say."""
    limits = settings.sandbox_limits()
    shares = limits.disk_shares()
    processors = "1 processor" if limits.cpus == 1 else f"{limits.cpus:g} processors"
    return (
        f"{show_bytes(limits.memory_bytes)} memory, {processors}, {limits.processes} processes and threads,"
        f" {show_bytes(limits.disk_bytes)} disk (working folder {show_bytes(shares.work)}, /tmp {show_bytes(shares.tmp)})"
    )

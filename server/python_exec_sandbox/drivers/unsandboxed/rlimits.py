"""Limits of a sandbox as the kernel's limits of a process, as far as there are such. Pure."""

from python_exec_sandbox.model.limits import SandboxLimits


def rlimits(limits: SandboxLimits) -> dict[str, int]:
    """By name, without ``RLIMIT_``. Each holds for each process by itself.

    DATA is what a process allocates (Linux counts private mappings too); AS, the whole address space, would
    stop programs that reserve much and use little. A file can't grow beyond FSIZE.
    """
    return {
        "DATA": limits.memory_bytes,
        "FSIZE": limits.disk_bytes,
        "NOFILE": limits.open_files,
        "CORE": 0,
    }

"""The engine's request body for a builder: the network, the store writable, and no capability at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_exec_sandbox.drivers.docker.spec import CA_BUNDLE_PATH, ca_mounts, store_mount
from python_exec_sandbox.drivers.docker.users import SCRIPT_GID
from python_exec_sandbox.model.limits import MIB

MEMORY_BYTES = 1024 * MIB
"""Resolving and unpacking take little; compiling large packages on every processor takes some hundred MiB."""

PROCESSES = 512
"""uv takes threads by the number of processors, several times."""

OPEN_FILES = 16_384
"""uv links the files of many packages at once."""

CPU_SHARES = 256
"""A quarter of what a script gets when both want the processor."""

LEAST_CPU_SHARES = 2
"""The least that engines take, for what nobody waits for."""

_SCRATCH_BYTES = 64 * MIB
"""For locks and the like; what is downloaded goes into the store."""


SOURCE_MEMORY_BYTES = 1536 * MIB
"""As above, and its files lie in its memory."""

_SOURCE_BYTES = 512 * MIB
"""For downloads, what they unpack to, and the tools that build them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderSpec:
    """What a builder's container is made from; ``network`` is the engine's ``NetworkMode``."""

    image: str
    network: str
    store: str
    labels: Mapping[str, str]
    runtime: str | None = None
    ca_bundle: Path | None = None
    cpu_shares: int = CPU_SHARES

    def body(self) -> dict[str, Any]:
        """The body of ``POST /containers/create``, good from API 1.41 on."""
        # It owns the store, so that it needs no capability to write there, and scripts can't.
        return self._container("build", "0:0", self._host_config())

    def source_body(self, uid: int) -> dict[str, Any]:
        """The body for a build sandbox, where code of packages runs as ``uid``: no store, nothing to keep."""
        host = self._host_config()
        owner = f"uid={uid},gid={SCRIPT_GID}"
        host |= {
            "Memory": SOURCE_MEMORY_BYTES,
            "MemorySwap": SOURCE_MEMORY_BYTES,
            "Mounts": ca_mounts(self.ca_bundle),
            "Tmpfs": {
                "/env": f"rw,exec,nosuid,nodev,size={_SOURCE_BYTES},{owner},mode=0700",
                "/tmp": f"rw,exec,nosuid,nodev,size={_SCRATCH_BYTES},{owner},mode=0700",  # noqa: S108  # inside it
            },
        }
        return self._container("build-source", f"{uid}:{SCRIPT_GID}", host)

    def _container(self, command: str, user: str, host: dict[str, Any]) -> dict[str, Any]:
        trusted = [] if self.ca_bundle is None else [f"SSL_CERT_FILE={CA_BUNDLE_PATH}"]
        return {
            "Image": self.image,
            "Cmd": [command],
            "User": user,
            "WorkingDir": "/",
            "Hostname": "builder",
            "Env": trusted,
            "Labels": dict(self.labels),
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "OpenStdin": True,
            "StdinOnce": True,  # the builder ends with our connection
            "Tty": False,
            "HostConfig": host,
        }

    def _host_config(self) -> dict[str, Any]:
        host: dict[str, Any] = {
            "AutoRemove": True,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "NetworkMode": self.network,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "PidMode": "",
            "Memory": MEMORY_BYTES,
            "MemorySwap": MEMORY_BYTES,
            "CpuShares": self.cpu_shares,
            "PidsLimit": PROCESSES,
            "Ulimits": [
                {"Name": "nofile", "Soft": OPEN_FILES, "Hard": OPEN_FILES},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "Tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={_SCRATCH_BYTES},mode=0700"},  # noqa: S108  # inside it
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no"},
            "Mounts": [store_mount(self.store, read_only=False), *ca_mounts(self.ca_bundle)],
        }
        if self.runtime is not None:
            host["Runtime"] = self.runtime
        return host

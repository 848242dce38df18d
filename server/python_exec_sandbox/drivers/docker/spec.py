"""The engine's request body for a sandbox: limits in, dictionary out, no effects.

Who is who inside: the runner is uid 0 with three capabilities (to change to the script's uid and to kill
what runs there); the script is a uid of its own with none. What a script may write lies in tmpfs of fixed sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_exec_sandbox.drivers.docker.labels import SHARED
from python_exec_sandbox.drivers.docker.options import DEFAULT_STORE
from python_exec_sandbox.drivers.docker.users import SCRIPT_GID
from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.model.limits import MIB, RUNNER_RESERVE_BYTES, SandboxLimits
from python_exec_sandbox.stream.building import STORE

CA_BUNDLE_PATH = "/etc/ssl/sandbox-ca.crt"

# The only variables a container gets; nothing of the server's own environment is passed on unasked.
ALLOWED_VARIABLES = frozenset({"LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"})

_CAPABILITIES = ("SETUID", "SETGID", "KILL")

_RUNNER_FOLDER_BYTES = MIB  # a few sockets and small files; part of the runner's reserve

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What one container is made from.

    ``image`` is an id, so that a moved tag changes nothing; ``network`` is the engine's ``NetworkMode``, a
    network's id or ``"none"``; ``uid`` is the script's; ``store`` is the name of a volume.
    """

    image: str
    python: str
    limits: SandboxLimits
    network: str
    uid: int
    labels: Mapping[str, str]
    store: str = DEFAULT_STORE
    runtime: str | None = None
    ca_bundle: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    runner_arguments: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        """The body of ``POST /containers/create``, good from API 1.41 on.

        Raises:
            ConfigurationError: the limits contradict each other, or a variable isn't allowed.
        """
        return {
            "Image": self.image,
            "Cmd": list(runner_command(self.python, self.uid, self.runner_arguments)),
            "User": "0:0",
            "WorkingDir": "/",
            "Hostname": "sandbox",
            "Env": [f"{name}={value}" for name, value in self._variables()],
            "Labels": dict(self.labels),
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "OpenStdin": True,
            "StdinOnce": True,  # the runner's input ends with our connection: the dead man's switch
            "Tty": False,
            "HostConfig": self._host_config(),
        }

    def _host_config(self) -> dict[str, Any]:
        limits = self.limits
        host: dict[str, Any] = {
            "AutoRemove": True,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": list(_CAPABILITIES),
            # No seccomp option: the engine's own default profile applies (moby's profiles/seccomp, the list that
            # its documentation prints), which grows with the engine and fits its kernel. One of ours would have to
            # follow every new system call, and older engines refuse names they don't know. Where an engine was
            # set up without one, the wall rests on capabilities and users alone.
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": False,
            "NetworkMode": self.network,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "PidMode": "",  # the engine's word for a namespace of its own
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,  # memory and swap together: no swap
            "NanoCpus": round(limits.cpus * _NANO),
            "PidsLimit": limits.processes,
            "Ulimits": [
                {"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "ShmSize": limits.disk_shares().shm,
            "Tmpfs": tmpfs_mounts(limits, self.uid),
            "LogConfig": {"Type": "none", "Config": {}},  # or a flood of output fills the host's disk
            "RestartPolicy": {"Name": "no"},
        }
        # From the start, as nothing can be mounted later: environments that are built meanwhile appear in it.
        host["Mounts"] = [store_mount(self.store, read_only=True), *ca_mounts(self.ca_bundle)]
        if self.runtime is not None:
            host["Runtime"] = self.runtime
        return host

    def _variables(self) -> list[tuple[str, str]]:
        variables = dict(self.environment)
        if refused := sorted(set(variables) - ALLOWED_VARIABLES):
            raise ConfigurationError(
                f"The variables {', '.join(refused)} can't be given to sandboxes; "
                f"only {', '.join(sorted(ALLOWED_VARIABLES))} can."
            )
        if self.ca_bundle is not None:
            variables |= {"SSL_CERT_FILE": CA_BUNDLE_PATH, "REQUESTS_CA_BUNDLE": CA_BUNDLE_PATH}
        return sorted(variables.items())


def store_mount(store: str, *, read_only: bool) -> dict[str, Any]:
    """The volume of environments, which the engine makes, with our label, where there is none yet."""
    options = {"Labels": {SHARED: "true"}}
    return {
        "Type": "volume",
        "Source": store,
        "Target": STORE,
        "ReadOnly": read_only,
        "VolumeOptions": options,
    }


def ca_mounts(bundle: Path | None) -> list[dict[str, Any]]:
    """The certificates to trust, where there are any beside the image's own."""
    if bundle is None:
        return []
    return [{"Type": "bind", "Source": str(bundle), "Target": CA_BUNDLE_PATH, "ReadOnly": True}]


def runner_command(python: str, uid: int, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The arguments of the image's entry point, the runner."""
    return ("--python", python, "--uid", str(uid), *more)


def tmpfs_mounts(limits: SandboxLimits, uid: int) -> dict[str, str]:
    """Every writable path but /dev/shm, with its mount options.

    Owner and mode are spelled out, because some engines take those of the image's folder otherwise (and the
    mode even so, which is why the image's folders have the same), and
    ``exec`` because the engine's default forbids it: scripts build and load extension modules there.

    Raises:
        ConfigurationError: together they could take more memory than the sandbox has.
    """
    shares = limits.disk_shares()
    needed = limits.disk_bytes + limits.environment_bytes + RUNNER_RESERVE_BYTES
    if needed > limits.memory_bytes:
        raise ConfigurationError(
            f"A sandbox's files live in its memory: disk {limits.disk_bytes // MIB} MiB + environment "
            f"{limits.environment_bytes // MIB} MiB + {RUNNER_RESERVE_BYTES // MIB} MiB for the runner are more "
            f"than its memory of {limits.memory_bytes // MIB} MiB. Raise --memory or lower the others."
        )
    return {
        "/work": _script_folder(shares.work, uid, "0700"),
        "/tmp": _script_folder(shares.tmp, uid, "1777"),  # noqa: S108  # a path inside the sandbox
        "/home/sandbox": _script_folder(shares.home, uid, "0700"),
        "/env": _script_folder(limits.environment_bytes, uid, "0700"),
        "/run/runner": f"rw,noexec,nosuid,nodev,size={_RUNNER_FOLDER_BYTES},uid=0,gid=0,mode=0711",
    }


def _script_folder(size: int, uid: int, mode: str) -> str:
    return f"rw,exec,nosuid,nodev,size={size},uid={uid},gid={SCRIPT_GID},mode={mode}"

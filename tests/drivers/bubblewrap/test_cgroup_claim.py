"""Which groups a server gets on which machine, and what holds there, by a fake of the kernel's files."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.cgroup.base import Groups, Limit, Means
from python_exec_sandbox.drivers.bubblewrap.cgroup.claim import Machine, claim_on
from python_exec_sandbox.drivers.bubblewrap.cgroup.groups import Unavailable
from python_exec_sandbox.drivers.bubblewrap.cgroup.names import scope_name
from python_exec_sandbox.drivers.identity import Life, ServerIdentity
from python_exec_sandbox.errors import CreateFailed
from python_exec_sandbox.model.limits import MIB, SandboxLimits
from tests.support.fake_cgroups import SERVER_PID, FakeKernel

SERVER = ServerIdentity(SERVER_PID, "5000", "0a1b-2c/pid:[4026531836]")
LIMITS = SandboxLimits(memory_bytes=64 * MIB, cpus=1.5, processes=32)
TOP = Path("/sys/fs/cgroup")
SLICE = TOP / "user.slice/user-1000.slice/user@1000.service/app.slice"
SCOPE = SLICE / scope_name(SERVER)


def refuse(arguments: Sequence[str]) -> None:
    raise Unavailable("no user bus")


def claim(kernel: FakeKernel, *, systemd: bool = False, release: str = "6.1.0") -> Groups:
    def move(arguments: Sequence[str]) -> None:
        assert arguments[2] == SCOPE.name
        kernel.place(SERVER_PID, SCOPE)

    machine = Machine(
        kernel=kernel,
        ask=move if systemd else refuse,
        uid=kernel.uid,
        release=release,
        life=lambda server: Life.ALIVE,
    )
    return claim_on(machine, SERVER)


def user_machine(*controllers: str) -> FakeKernel:
    """Version 2 and the user's systemd; the server was started in a terminal beside a shell."""
    kernel = FakeKernel(uid=1000)
    kernel.mount(str(TOP), 2, *controllers, "io")
    for folder in (*reversed(SLICE.relative_to(TOP).parents), SLICE.relative_to(TOP)):
        kernel.place(1, TOP / folder)
        kernel.files[TOP / folder / "cgroup.subtree_control"] = " ".join(controllers)
    kernel.place(1, TOP)
    kernel.owned = {SLICE.parent}
    kernel.place(77, SLICE / "terminal.scope")
    kernel.place(SERVER_PID, SLICE / "terminal.scope")
    return kernel


def v1_machine(uid: int, *controllers: str) -> FakeKernel:
    kernel = FakeKernel(uid)
    for controller in controllers:
        kernel.mount(f"{TOP}/{controller}", 1, controller)
    return kernel


def means(groups: Groups) -> dict[Limit, Means]:
    assert [state.limit for state in groups.effective] == list(Limit)
    for state in groups.effective:
        assert (state.reason == "") == (state.means is Means.GROUP)
    return {state.limit: state.means for state in groups.effective}


def reasons(groups: Groups) -> str:
    return "\n".join(state.reason for state in groups.effective)


ALL_BY_GROUP = dict.fromkeys(Limit, Means.GROUP)
NOTHING_BY_GROUP = {
    Limit.MEMORY: Means.RLIMIT,
    Limit.SWAP: Means.NOTHING,
    Limit.PROCESSES: Means.RLIMIT,
    Limit.CPUS: Means.NOTHING,
}


def test_a_user_gets_a_scope_of_their_systemd_and_the_server_moves_into_its_holder() -> None:
    kernel = user_machine("memory", "pids", "cpu")
    groups = claim(kernel, systemd=True)
    assert groups.kind == "cgroup v2, a scope of the user's systemd"
    assert means(groups) == ALL_BY_GROUP
    assert kernel.inside(SCOPE / "holder") == [SERVER_PID]
    assert kernel.inside(SLICE / "terminal.scope") == [77]


def test_a_sandbox_of_version_2_gets_each_limit() -> None:
    kernel = user_machine("memory", "pids", "cpu")
    group = claim(kernel, systemd=True).open(LIMITS)
    folder = SCOPE / group.name
    values = {name: kernel.files[folder / name] for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert values == {"memory.max": str(64 * MIB), "memory.swap.max": "0", "pids.max": "32"}
    assert kernel.files[folder / "cpu.max"] == "150000 100000"
    assert kernel.files[folder / "memory.oom.group"] == "0"
    assert group.entrances == (folder / "cgroup.procs",)


def test_the_shell_beside_the_server_is_never_moved() -> None:
    kernel = user_machine("memory", "pids", "cpu")
    groups = claim(kernel)
    assert kernel.inside(SLICE / "terminal.scope") == [77, SERVER_PID]
    assert means(groups) == NOTHING_BY_GROUP
    assert "no user bus" in reasons(groups)


def test_a_scope_that_the_process_never_reaches_is_not_waited_for_without_end() -> None:
    kernel = user_machine("memory", "pids")
    machine = Machine(kernel=kernel, ask=lambda arguments: None, uid=1000, release="6.1.0")
    groups = claim_on(machine, SERVER)
    assert "moved nothing there in 2 s" in reasons(groups)
    assert kernel.now < 3


def test_a_controller_that_is_not_left_to_the_user_is_named_with_the_fix() -> None:
    groups = claim(user_machine("memory", "pids"), systemd=True)
    assert means(groups) == ALL_BY_GROUP | {Limit.CPUS: Means.NOTHING}
    assert "the cpu controller isn't left to this user" in reasons(groups)
    assert "Delegate=memory pids cpu" in reasons(groups)


def test_without_the_memory_controller_each_process_is_limited_by_itself() -> None:
    groups = claim(user_machine("pids"), systemd=True)
    assert means(groups)[Limit.PROCESSES] is Means.GROUP
    assert means(groups)[Limit.MEMORY] is Means.RLIMIT
    assert "RLIMIT_AS" in reasons(groups)


def test_a_delegated_service_is_divided_as_it_is() -> None:
    kernel = FakeKernel(uid=500)
    kernel.mount(str(TOP), 2, "memory", "pids", "cpu")
    service = TOP / "system.slice/sandboxes.service"
    for folder in (TOP, TOP / "system.slice"):
        kernel.place(1, folder)
        kernel.files[folder / "cgroup.subtree_control"] = "memory pids cpu"
    kernel.place(SERVER_PID, service)
    kernel.place(101, service)
    kernel.owned = kernel.delegated = {service}
    groups = claim(kernel)
    assert (groups.kind, means(groups)) == ("cgroup v2, delegated", ALL_BY_GROUP)
    assert kernel.inside(service / "holder") == [SERVER_PID, 101]


def test_a_second_claim_in_the_same_scope_finds_the_first_ones() -> None:
    kernel = user_machine("memory", "pids", "cpu")
    claim(kernel, systemd=True)
    again = claim(kernel)
    assert means(again) == ALL_BY_GROUP
    assert kernel.folders(SCOPE) == ["holder"]


def test_root_makes_groups_at_the_top_of_version_2() -> None:
    kernel = FakeKernel(uid=0)
    kernel.mount(str(TOP), 2, "memory", "pids", "cpu", "io")
    kernel.place(SERVER_PID, TOP / "user.slice/session-1.scope")
    kernel.place(1, TOP)
    groups = claim(kernel)
    assert (groups.kind, means(groups)) == ("cgroup v2, as root", ALL_BY_GROUP)
    assert kernel.inside(TOP / "user.slice/session-1.scope") == [SERVER_PID]
    assert groups.open(LIMITS).entrances[0].parent.parent == TOP / "python-exec-sandbox"


def test_root_in_a_container_divides_the_containers_own_group() -> None:
    kernel = FakeKernel(uid=0)
    kernel.mount(str(TOP), 2, "memory", "pids", "cpu", enclosed=True)
    kernel.place(SERVER_PID, TOP)
    kernel.place(1, TOP)
    groups = claim(kernel)
    assert means(groups) == ALL_BY_GROUP
    assert kernel.inside(TOP / "holder") == [1, SERVER_PID]
    assert means(claim(kernel)) == ALL_BY_GROUP


def test_root_gets_a_group_in_each_hierarchy_of_version_1() -> None:
    kernel = v1_machine(0, "memory", "pids", "cpu", "freezer", "devices")
    groups = claim(kernel)
    assert (groups.kind, means(groups)) == ("cgroup v1, as root", ALL_BY_GROUP)
    group = groups.open(LIMITS)
    values = {path.name: text for path, text in kernel.files.items() if path.parent.name == group.name}
    assert values["memory.limit_in_bytes"] == values["memory.memsw.limit_in_bytes"] == str(64 * MIB)
    assert (values["pids.max"], values["cpu.cfs_quota_us"]) == ("32", "150000")
    assert len(group.entrances) == 4


def test_the_hybrid_layout_is_version_1_where_the_controllers_are() -> None:
    kernel = v1_machine(0, "memory", "pids", "cpu", "freezer")
    kernel.mount(f"{TOP}/unified", 2, "hugetlb")
    assert claim(kernel).kind == "cgroup v1, as root"


def test_controllers_that_share_a_hierarchy_share_a_folder() -> None:
    kernel = v1_machine(0, "memory", "pids", "freezer")
    kernel.mount(f"{TOP}/cpu,cpuacct", 1, "cpu", "cpuacct")
    groups = claim(kernel)
    assert means(groups) == ALL_BY_GROUP
    assert Path(f"{TOP}/cpu,cpuacct") in {path.parent.parent.parent for path in groups.open(LIMITS).entrances}


def test_a_kernel_that_counts_no_swap_says_so() -> None:
    kernel = v1_machine(0, "memory", "pids", "cpu", "freezer")
    kernel.absent = {"memory.memsw.limit_in_bytes"}
    groups = claim(kernel)
    assert means(groups) == ALL_BY_GROUP | {Limit.SWAP: Means.NOTHING}
    assert "swap" in reasons(groups)
    groups.open(LIMITS)


def test_version_1_is_not_for_users() -> None:
    groups = claim(v1_machine(1000, "memory", "pids", "cpu", "freezer"))
    assert (groups.kind, means(groups)) == ("no control groups", NOTHING_BY_GROUP)
    assert "root's alone" in reasons(groups)


def test_a_machine_without_groups_is_said_to_be_one_and_its_group_does_nothing() -> None:
    groups = claim(FakeKernel())
    assert means(groups) == NOTHING_BY_GROUP
    first, second = groups.open(LIMITS), groups.open(LIMITS)
    assert first.name != second.name
    assert first.entrances == ()
    first.add(1)
    first.kill()
    first.remove()
    assert first.usage().memory_kills is None
    assert groups.sweep() == 0


def test_an_old_kernel_can_not_count_a_sandboxes_processes_without_groups() -> None:
    groups = claim(FakeKernel(), release="5.10.0-28-amd64")
    assert means(groups) == NOTHING_BY_GROUP | {Limit.PROCESSES: Means.NOTHING}
    assert "5.14" in reasons(groups)


def test_groups_that_can_not_be_made_are_as_good_as_none() -> None:
    kernel = v1_machine(0, "memory", "pids", "cpu", "freezer")
    kernel.refused = {"memory.limit_in_bytes": errno.EINVAL, "pids.max": errno.EINVAL}
    groups = claim(kernel)
    assert groups.kind == "no control groups"
    assert kernel.groups() == {"python-exec-sandbox", "memory", "pids", "cpu", "freezer"}


def test_a_group_that_fails_half_way_leaves_nothing() -> None:
    kernel = v1_machine(0, "memory", "pids", "cpu", "freezer")
    groups = claim(kernel)
    kernel.refused = {"pids.max": errno.EINVAL}
    with pytest.raises(CreateFailed, match="could not be made"):
        groups.open(LIMITS)
    groups.close()
    assert kernel.groups() == {"memory", "pids", "cpu", "freezer"}

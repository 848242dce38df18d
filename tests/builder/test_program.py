import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.built import Built
from builder.installer import InstallerFailed, InstallerKilled, NeedsSource, Settings
from builder.program import OFFLINE_SECONDS, Base, Program, Request
from builder.store import Store

NONE = {"config": "", "variables": {}, "certificates": ""}
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class FakeInstaller:
    """Resolves to what it is told to, and puts one package into environments."""

    def __init__(self, *locks: str) -> None:
        self.locks = list(locks) or ["six==1.17.0 --hash=sha256:00"]
        self.calls: list[str] = []
        self.retries: list[int] = []
        self.fail: dict[str, Exception] = {}
        self.caches: list[str] = []
        self.wheels: list[list[str]] = []

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if error := self.fail.pop(what, None):
            raise error

    def resolve(
        self,
        python: str,
        requirements: list[str],
        scratch: str,
        *,
        offline: bool = False,
        retries: int = 3,
    ) -> str:
        self.retries.append(retries)
        self._called("resolve offline" if offline else "resolve")
        return self.locks.pop(0) if len(self.locks) > 1 else self.locks[0]

    def make(self, python: str, folder: str) -> None:
        self._called("make")
        os.makedirs(os.path.join(folder, "bin"))
        os.symlink(python, os.path.join(folder, "bin", "python"))
        os.makedirs(os.path.join(folder, "lib", f"python{PYTHON}", "site-packages"))

    def ask(self, python: str, cache: str) -> None:
        self._called("ask")
        site = Path(python).parent.parent / "lib" / f"python{PYTHON}" / "site-packages"
        assert list(site.iterdir()) == [], "nothing is in it that could run"
        facts = Path(cache, "interpreter-v9", "aa")
        facts.mkdir(parents=True)
        (facts / "bb.msgpack").write_bytes(b"facts")

    def private(self, cache: str) -> "FakeInstaller":
        os.mkdir(cache)
        self.caches.append(cache)
        return self

    def install(self, python: str, lock: str, scratch: str, wheels: str | None = None) -> None:
        self._called("install")
        self.wheels.append(os.listdir(wheels) if wheels else [])
        site = Path(python).parent.parent / "lib" / f"python{PYTHON}" / "site-packages"
        (site / "six-1.17.0.dist-info").mkdir()
        (site / "six.py").write_text("x = 1\n")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture
def installer() -> FakeInstaller:
    return FakeInstaller()


Ask = Callable[..., dict[str, object]]


@pytest.fixture
def ask(store: Store, installer: FakeInstaller) -> Ask:
    def ask(
        *requirements: str, seconds: float = 3600.0, python: str = PYTHON, built: Built | None = None
    ) -> dict[str, object]:
        program = Program(store, installer, {PYTHON: sys.executable}, lambda words: None)  # type: ignore[arg-type]  # a fake
        return program.answer(Request(python, sorted(requirements) or ["six"], seconds), built)

    return ask


def test_an_environment_is_built_whole_with_bytecode_facts_and_a_list_of_packages(
    ask: Ask, store: Store, installer: FakeInstaller
) -> None:
    answer = ask()
    assert answer["type"] == "built"
    assert answer["reused"] is False
    assert answer["packages"] == [["six", "1.17.0"]]
    name = str(answer["id"])
    assert (Path(store.facts_of(name)) / "interpreter-v9" / "aa" / "bb.msgpack").read_bytes() == b"facts"
    assert list(Path(store.folder_of(name)).rglob("six.*.pyc"))
    assert installer.calls == ["resolve", "make", "ask", "install"]


def test_the_same_request_again_asks_nobody(ask: Ask, installer: FakeInstaller) -> None:
    first, second = ask("six", "a"), ask("a", "six")
    assert second["id"] == first["id"]
    assert second["reused"] is True
    assert installer.calls.count("resolve") == 1


def test_other_requests_that_lead_to_the_same_lock_share_an_environment(
    ask: Ask, installer: FakeInstaller
) -> None:
    first, second = ask("six"), ask("six>=1")
    assert second["id"] == first["id"]
    assert installer.calls.count("install") == 1


def test_open_versions_are_resolved_again_after_their_time(ask: Ask, installer: FakeInstaller) -> None:
    installer.locks = ["six==1.0", "six==2.0"]
    first, second = ask("six", seconds=0.0), ask("six", seconds=0.0)
    assert first["id"] != second["id"]
    assert first["fresh_seconds"] == 0.0


def test_pinned_versions_never_ask_the_index_again(ask: Ask, installer: FakeInstaller) -> None:
    first = ask("six==1.17.0", "rich[jupyter]==14; python_version>'3'", seconds=0.0)
    assert first["fresh_seconds"] is None
    assert ask("six==1.17.0", "rich[jupyter]==14; python_version>'3'", seconds=0.0)["id"] == first["id"]
    assert installer.calls.count("resolve") == 1


@pytest.mark.parametrize(
    ("requirement", "is_pinned"),
    [
        ("six==1.17.0", True),
        ("six===1.17.0", True),
        ("six[a,b]==1.17.0", True),
        ('six==1.17.0 ; python_version < "4"', True),
        ("six", False),
        ("six==1.*", False),
        ("six>=1,==1.17.0", False),
        ("six==1.17.0,!=2", False),
        ("six~=1.17.0", False),
        ("six @ https://files.example/six-1.17.0-py3-none-any.whl", False),
    ],
)
def test_what_counts_as_pinned(requirement: str, is_pinned: bool) -> None:
    assert Request(PYTHON, [requirement], 1.0).is_pinned is is_pinned


def test_a_clock_that_was_set_back_makes_nothing_fresh_for_ever(
    ask: Ask, installer: FakeInstaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask()
    monkeypatch.setattr("time.time", lambda: 1000.0)
    ask()
    assert installer.calls.count("resolve") == 2


@pytest.mark.parametrize("step", ["resolve", "make", "ask", "install"])
def test_what_the_installer_says_comes_back_and_nothing_half_built_is_left(
    ask: Ask, store: Store, installer: FakeInstaller, step: str
) -> None:
    installer.fail[step] = InstallerFailed("error: no such thing")
    assert ask() == {"type": "failed", "cause": "installer", "text": "error: no such thing"}
    assert os.listdir(os.path.join(store.root, "envs")) == []
    assert os.listdir(os.path.join(store.root, "facts")) == []
    assert ask()["reused"] is False


def test_a_remembered_lock_that_cannot_be_installed_any_more_is_resolved_again(
    ask: Ask, store: Store, installer: FakeInstaller, tmp_path: Path
) -> None:
    installer.locks = ["six==1.0", "six==2.0"]
    first = ask("six==1.0")
    os.unlink(store.python_of(str(first["id"])))  # it was pruned
    installer.fail["install"] = InstallerFailed("error: 404")
    assert ask("six==1.0")["id"] != first["id"]
    assert installer.calls.count("resolve") == 2


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (InstallerKilled(), "memory"),
        (MemoryError(), "memory"),
        (OSError(errno.ENOSPC, "full"), "no_room"),
        (OSError(errno.EDQUOT, "quota"), "no_room"),
    ],
)
def test_memory_and_room_that_run_out_are_named(
    ask: Ask, installer: FakeInstaller, error: Exception, cause: str
) -> None:
    installer.fail["install"] = error
    assert ask()["cause"] == cause


def test_a_full_disk_is_given_room_by_what_was_not_used_for_a_long_time(
    ask: Ask, store: Store, installer: FakeInstaller
) -> None:
    installer.locks = ["six==1.0", "six==2.0"]
    old = ask("six==1.0")
    os.utime(os.path.join(store.root, "leases", str(old["id"])), (1, 1))
    installer.fail["install"] = OSError(errno.ENOSPC, "full")
    assert ask("six==2.0")["type"] == "built"
    assert not os.path.exists(store.folder_of(str(old["id"])))


def test_a_disk_that_stays_full_is_told_of_and_what_was_used_lately_stays(
    ask: Ask, store: Store, installer: FakeInstaller
) -> None:
    installer.locks = ["six==1.0", "six==2.0"]
    kept = ask("six==1.0")
    installer.fail["install"] = OSError(errno.ENOSPC, "full")
    assert ask("six==2.0") == {"type": "failed", "cause": "no_room", "text": ""}
    assert os.listdir(os.path.join(store.root, "envs")) == [str(kept["id"])]
    assert os.listdir(os.path.join(store.root, "leases")) == [str(kept["id"])]
    assert ask("six==1.0")["reused"] is True


def test_bytecode_that_found_no_room_is_noticed(
    ask: Ask, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.statvfs(store.root)
    full = os.statvfs_result((*free[:4], 0, *free[5:10], free.f_fsid))
    monkeypatch.setattr("os.statvfs", lambda path: full)
    assert ask()["cause"] == "no_room"


def test_versions_are_told_and_remembered_without_installing(
    store: Store, installer: FakeInstaller, ask: Ask
) -> None:
    installer.locks = [
        (
            "numpy==2.1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
            "Six==1.17.0 ; python_version >= '3' \\\n    --hash=sha256:02\n"
            "local @ https://files.example/local-1.0-py3-none-any.whl \\\n    --hash=sha256:03\n"
        )
    ]
    program = Program(store, installer, {PYTHON: sys.executable}, lambda _: None)  # type: ignore[arg-type]  # a fake
    request = Request(PYTHON, ["six"], 3600.0, "resolve")
    assert program.answer(request) == {
        "type": "resolved",
        "packages": [
            ["numpy", "2.1.0"],
            ["six", "1.17.0"],
            ["local", "https://files.example/local-1.0-py3-none-any.whl"],
        ],
    }
    assert os.listdir(os.path.join(store.root, "envs")) == []
    ask("six")
    assert installer.calls.count("resolve") == 1
    installer.fail["resolve"] = InstallerFailed("error: no such thing")
    assert program.answer(Request(PYTHON, ["no"], 3600.0, "resolve"))["cause"] == "installer"


UNREACHABLE = InstallerFailed("error: Failed to fetch: `https://x/six/`\n  cause: dns error")


def test_without_an_index_what_it_said_before_is_used_however_old(ask: Ask, installer: FakeInstaller) -> None:
    first = ask("six")
    installer.fail["resolve"] = UNREACHABLE
    again = ask("six", seconds=0.0)
    assert (again["id"], again["reused"]) == (first["id"], True)
    assert again["fresh_seconds"] == OFFLINE_SECONDS, "finding that out takes seconds"
    assert installer.retries == [3, 1]


def test_without_an_index_a_new_set_comes_from_the_cache_if_that_has_all_of_it(
    ask: Ask, installer: FakeInstaller
) -> None:
    installer.fail["resolve"] = UNREACHABLE
    assert ask("six", "humanize")["fresh_seconds"] == OFFLINE_SECONDS
    assert installer.calls[:2] == ["resolve", "resolve offline"]
    ask("six", "humanize")
    assert installer.calls.count("resolve") == 2, "the index is asked as soon as it may be there"
    installer.fail = {"resolve": UNREACHABLE, "resolve offline": InstallerFailed("not in the cache")}
    assert "dns error" in str(ask("other")["text"])


def test_what_the_index_says_of_the_requirements_is_not_gone_around(
    ask: Ask, installer: FakeInstaller
) -> None:
    ask("six")
    installer.fail["resolve"] = InstallerFailed("error: six was yanked")
    assert ask("six", seconds=0.0)["cause"] == "installer"


def warmed(
    store: Store, installer: FakeInstaller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[], dict[str, object]]:
    names = tmp_path / "names"
    names.write_text("six\nnumpy\n")
    monkeypatch.setattr("builder.warming.LIST", str(names))
    program = Program(store, installer, {PYTHON: sys.executable}, lambda _: None)  # type: ignore[arg-type]  # a fake
    return lambda: program.answer(Request(PYTHON, [], 3600.0, "warm"))


def test_packages_are_installed_ahead_one_at_a_time_and_once(
    store: Store, installer: FakeInstaller, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warm = warmed(store, installer, monkeypatch, tmp_path)
    assert warm() == {"type": "warmed", "package": "six", "left": 1}
    assert ask("six")["reused"] is True
    installer.fail["resolve"] = InstallerFailed("error: numpy has no usable wheels")
    assert warm() == {"type": "warmed", "package": "numpy", "left": 0}, "nobody has to know"
    assert warm() == {"type": "warmed", "package": "", "left": 0}


def test_without_an_index_a_package_keeps_its_turn(
    store: Store, installer: FakeInstaller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warm = warmed(store, installer, monkeypatch, tmp_path)
    installer.fail["resolve"] = UNREACHABLE
    assert warm()["cause"] == "installer"
    assert warm() == {"type": "warmed", "package": "six", "left": 1}


def test_emptied_on_demand_it_says_how_much_that_freed(
    ask: Ask, store: Store, installer: FakeInstaller
) -> None:
    ask()
    program = Program(store, installer, {}, lambda words: None)  # type: ignore[arg-type]  # a fake
    answer = program.answer(Request("", [], 0.0, "trim"))
    assert answer["type"] == "trimmed"
    assert int(str(answer["freed"])) > 0
    assert os.listdir(os.path.join(store.root, "envs")) == []


def test_another_interpreter_file_is_another_environment(tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text("1")
    before = Base.of("3.13", str(file))
    file.write_text("12")
    assert Base.of("3.13", str(file)).fingerprint != before.fingerprint


def test_other_indexes_are_another_request(store: Store, installer: FakeInstaller) -> None:
    def ask(config: str) -> dict[str, object]:
        program = Program(store, installer, {PYTHON: sys.executable}, lambda words: None)  # type: ignore[arg-type]  # a fake
        return program.answer(Request(PYTHON, ["six"], 3600.0, installer=Settings(config)))

    installer.locks = ["six==1.0", "six==2.0"]
    assert ask("")["id"] != ask("no-index = true\n")["id"]
    assert ask("")["reused"] is True


ASKED = {
    "task": "build",
    "python": "3.13",
    "requirements": ["six"],
    "resolution_seconds": 1,
    "store_bytes": 1,
    "used": {},
    "installer": NONE,
    "from_source": False,
    "python_mirror": "",
}


def test_a_request_is_read_as_it_was_sent() -> None:
    line = json.dumps(ASKED | {"requirements": ["b", "a"], "used": {"ab" * 16: 2}}).encode()
    assert Request.parse(line) == Request("3.13", ["a", "b"], 1.0, "build", 1, {"ab" * 16: 2.0})
    trim = json.dumps(ASKED | {"task": "trim", "python": "", "requirements": []}).encode()
    assert Request.parse(trim).task == "trim"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        json.dumps(ASKED | {"requirements": ["a\n--index-url x"]}).encode(),
        json.dumps(ASKED | {"requirements": [1]}).encode(),
        json.dumps(ASKED | {"requirements": "six"}).encode(),
        json.dumps(ASKED | {"task": "rebuild"}).encode(),
        json.dumps(ASKED | {"used": {"../x": 1}}).encode(),
        json.dumps(ASKED | {"used": {"ab" * 16: "now"}}).encode(),
    ],
)
def test_what_is_no_request_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Request.parse(line)


BUILT = Built(("six==1.17.0 --hash=sha256:00",), {"x-1.0-py3-none-any.whl": b"wheel"})


def test_what_needs_a_build_is_told_from_other_failures(ask: Ask, installer: FakeInstaller) -> None:
    installer.fail["resolve"] = NeedsSource("error: no usable wheels")
    assert ask() == {"type": "failed", "cause": "needs_source", "text": "error: no usable wheels"}


def test_what_was_built_is_installed_once_with_a_cache_of_its_own(
    ask: Ask, store: Store, installer: FakeInstaller
) -> None:
    first = ask("x", built=BUILT)
    assert (first["type"], first["reused"]) == ("built", False)
    assert installer.wheels == [["x-1.0-py3-none-any.whl"]]
    assert not os.path.exists(installer.caches[0])
    assert os.listdir(os.path.join(store.root, "private")) == []
    assert "resolve" not in installer.calls
    again = ask("x")
    assert (again["id"], again["reused"]) == (first["id"], True)


def test_what_was_built_is_for_its_own_request_alone(ask: Ask, installer: FakeInstaller) -> None:
    first = ask("x", built=BUILT)
    installer.locks = [BUILT.lock]
    assert ask("y")["id"] != first["id"], "even where the same lock is claimed"
    assert ask("z", built=BUILT)["id"] != first["id"]


def test_what_was_built_and_is_gone_is_built_again(ask: Ask, store: Store, installer: FakeInstaller) -> None:
    first = ask("x==1", built=BUILT)
    os.unlink(store.python_of(str(first["id"])))
    installer.fail["resolve"] = NeedsSource("error: no usable wheels")
    assert ask("x==1")["cause"] == "needs_source"
    assert ask("x==1", built=BUILT)["id"] != first["id"]


def test_what_was_built_grows_old_like_everything_else(ask: Ask, installer: FakeInstaller) -> None:
    ask("x", built=BUILT, seconds=0.0)
    installer.fail["resolve"] = NeedsSource("error: no usable wheels")
    assert ask("x", seconds=0.0)["cause"] == "needs_source"


def test_a_wheel_that_cannot_be_installed_leaves_nothing(
    ask: Ask, store: Store, installer: FakeInstaller
) -> None:
    installer.fail["install"] = InstallerFailed("error: the wheel is invalid")
    assert ask("x", built=BUILT)["cause"] == "installer"
    for folder in ("envs", "facts", "private"):
        assert os.listdir(os.path.join(store.root, folder)) == []
    assert store.sweep() == 0

import fcntl
import os
import time
from pathlib import Path

import pytest

from builder.room import Room, measured, size_of
from builder.store import SPARED_SECONDS, Environment, Store

MIB = 1024 * 1024
LONG_AGO = 10_000.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def archive(store: Store, name: str, size: int = MIB) -> Path:
    """An unpacked wheel in uv's cache."""
    folder = Path(store.cache, "archive-v0", name)
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_bytes(os.urandom(size))
    return folder


def environment(store: Store, number: int, *archives: Path, ago: float = LONG_AGO) -> str:
    """A whole environment with links into ``archives``, last used so many seconds ago."""
    name = f"{number:032x}"
    python = Path(store.python_of(name))
    python.parent.mkdir(parents=True)
    python.touch()
    Path(store.facts_of(name)).mkdir()
    for one in archives:
        for file in one.iterdir():
            os.link(file, python.parent.parent / file.name)
    store.publish(f"key-{number}", Environment(name, [], size_of(store.folder_of(name))))
    used(store, name, ago)
    return name


def used(store: Store, name: str, ago: float) -> None:
    then = time.time() - ago
    os.utime(os.path.join(store.root, "leases", name), (then, then))


def names(store: Store) -> list[str]:
    return [name for _, name in store.by_last_use()]


def test_a_file_that_several_folders_hold_counts_once_and_goes_with_the_last(store: Store) -> None:
    wheel = archive(store, "six")
    first, second = environment(store, 1, wheel), environment(store, 2, wheel)
    ledger = measured(store)
    whole = ledger.total
    assert MIB <= whole < 1.5 * MIB
    for folder in (str(wheel), store.folder_of(first)):
        ledger.drop(folder)
        assert whole - ledger.total < MIB / 2
    ledger.drop(store.folder_of(second))
    assert whole - ledger.total >= MIB


def test_within_its_size_nothing_goes(store: Store) -> None:
    lonely = archive(store, "lonely")
    kept = environment(store, 1, archive(store, "six"))
    assert Room(store, 100 * MIB).keep() == 0
    assert names(store) == [kept]
    assert lonely.exists()


def test_beyond_it_what_nothing_uses_goes_first_and_then_what_was_not_used_for_longest(store: Store) -> None:
    lonely = archive(store, "lonely")
    wheels = [archive(store, f"wheel{number}") for number in range(4)]
    made = [
        environment(store, number, wheel, ago=LONG_AGO - number * 100) for number, wheel in enumerate(wheels)
    ]
    used(store, made[0], ago=200)
    assert Room(store, 3 * MIB).keep() >= 3 * MIB
    assert measured(store).total <= 3 * MIB
    assert names(store) == [made[3], made[0]]
    assert [wheel.exists() for wheel in (lonely, *wheels)] == [False, True, False, False, True]
    for gone in made[1:3]:
        assert not os.path.exists(store.folder_of(gone))
        assert not os.path.exists(store.facts_of(gone))
        assert not os.path.exists(os.path.join(store.root, "leases", gone))


def test_uses_that_a_server_tells_of_later_count(store: Store) -> None:
    made = [environment(store, number, archive(store, f"w{number}"), ago=500 - number) for number in range(3)]
    store.note_uses({made[0]: 5.0, made[2]: LONG_AGO, "ab" * 16: 1.0})
    assert names(store) == [made[1], made[2], made[0]]


def test_what_a_sandbox_holds_stays_and_so_does_what_was_asked_for_just_now(store: Store) -> None:
    held = environment(store, 1, archive(store, "held"))
    asked = environment(store, 2, archive(store, "asked"), ago=SPARED_SECONDS / 2)
    gone = environment(store, 3, archive(store, "gone"))
    with open(os.path.join(store.root, "leases", held), encoding="ascii") as lease:
        fcntl.flock(lease, fcntl.LOCK_SH)
        Room(store, 1).keep()
        assert sorted(names(store)) == sorted([held, asked])
        assert not os.path.exists(store.folder_of(gone))
        Room(store, 1).empty()
        assert names(store) == [held]
        assert os.path.exists(os.path.join(store.folder_of(held), "held.py"))
    Room(store, 1).empty()
    assert names(store) == []
    assert os.listdir(os.path.join(store.root, "envs")) == []


def test_what_is_being_built_stays_with_the_wheels_that_it_links_to(store: Store) -> None:
    wheel = archive(store, "six")
    name = "cd" * 16
    with store.building(name):
        os.makedirs(store.folder_of(name))
        os.link(wheel / "six.py", os.path.join(store.folder_of(name), "six.py"))
        Room(store, 1).empty()
        assert os.path.exists(os.path.join(store.folder_of(name), "six.py"))
        assert wheel.exists()


def test_nothing_goes_while_another_builder_works_with_the_cache(store: Store) -> None:
    lonely = archive(store, "lonely")
    with store.cache_in_use(lambda: None):
        assert Room(store, 1).keep() == 0
        assert lonely.exists()
    Room(store, 1).keep()
    assert not lonely.exists()


def test_killed_in_the_middle_of_a_removal_it_leaves_what_the_next_builder_sweeps(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = environment(store, 1, archive(store, "six"))
    child = os.fork()
    if not child:
        monkeypatch.setattr("shutil.rmtree", lambda *_, **__: os._exit(0))
        store.evict("key-1", name, 0.0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert names(store) == []
    assert os.path.exists(store.folder_of(name))
    assert Store(store.root).sweep() == 1
    assert not os.path.exists(store.folder_of(name))


def test_only_what_may_be_beyond_the_size_is_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(store, 1, archive(store, "one"))
    room = Room(store, 4 * MIB)
    room.keep()
    looked: list[Store] = []

    def look(store: Store) -> object:
        looked.append(store)
        return measured(store)

    monkeypatch.setattr("builder.room.measured", look)
    environment(store, 2, archive(store, "two"))
    room.keep()
    assert not looked
    environment(store, 3, archive(store, "three", 2 * MIB), ago=0.0)
    assert room.keep() > 0
    assert len(looked) == 1
    monkeypatch.setattr("time.time", lambda: 1.0)  # a clock that was set back makes no measure good for ever
    room.keep()
    assert len(looked) == 2


def test_what_uv_left_of_cut_off_installations_goes_with_the_rest(store: Store) -> None:
    left = [Path(store.cache, ".tmpAb", "x"), Path(store.cache, "builds-v0", ".tmpCd", "x")]
    answers = Path(store.cache, "simple-v28", "x")
    for file in (*left, answers):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * MIB)
    Room(store, 100 * MIB).tidy()
    assert [file.exists() for file in (*left, answers)] == [False, False, True]
    Room(store, 1).empty()
    assert not answers.exists()

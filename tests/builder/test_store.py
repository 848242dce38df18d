import os
import stat
from pathlib import Path

import pytest

from builder.store import Environment, Resolution, Store

NAME = "ab" * 16


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def make_environment(store: Store, name: str = NAME) -> None:
    for folder in (os.path.dirname(store.python_of(name)), store.facts_of(name)):
        os.makedirs(folder)
    Path(store.python_of(name)).touch()


def mode_of(path: str) -> str:
    return oct(stat.S_IMODE(os.stat(path).st_mode))


def test_where_scripts_are_of_its_owner_what_they_see_can_only_be_entered(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), one_user=True)
    modes = [mode_of(os.path.join(store.root, name)) for name in ("envs", "facts", "leases", "cache")]
    assert modes == ["0o311", "0o311", "0o311", "0o700"]


def test_scripts_can_enter_but_not_list_environments_and_not_enter_the_rest(store: Store) -> None:
    assert [mode_of(os.path.join(store.root, name)) for name in ("", "envs")] == ["0o711", "0o711"]
    assert [mode_of(os.path.join(store.root, name)) for name in ("cache", "index", "facts")] == ["0o700"] * 3


def test_a_store_made_otherwise_gets_its_modes_back(store: Store) -> None:
    os.chmod(store.root, 0o777)
    os.chmod(os.path.join(store.root, "envs"), 0o777)
    Store(store.root)
    assert mode_of(store.root) == "0o711"
    assert mode_of(os.path.join(store.root, "envs")) == "0o711"


def test_a_resolution_is_remembered(store: Store) -> None:
    assert store.resolution("key") is None
    store.remember("key", Resolution("six==1", 12.5))
    assert store.resolution("key") == Resolution("six==1", 12.5)


def test_an_environment_counts_once_it_is_published(store: Store) -> None:
    with store.building(NAME):
        make_environment(store)
        assert store.environment("key") is None
        store.publish("key", Environment(NAME, [["six", "1"]]))
    assert store.environment("key") == Environment(NAME, [["six", "1"]])
    assert store.sweep() == 0
    assert os.path.exists(store.python_of(NAME))


def test_an_environment_whose_folder_has_gone_counts_no_longer(store: Store) -> None:
    with store.building(NAME):
        make_environment(store)
        store.publish("key", Environment(NAME, []))
    os.unlink(store.python_of(NAME))
    assert store.environment("key") is None


def test_a_failed_build_leaves_nothing(store: Store) -> None:
    def fail() -> None:
        with store.building(NAME):
            make_environment(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not os.path.exists(store.folder_of(NAME))
    assert not os.path.exists(store.facts_of(NAME))
    assert os.listdir(os.path.join(store.root, "index", "building")) == []


def killed_build(store: Store, name: str = NAME) -> Path:
    """What a builder leaves that was killed: its environment, and a lock that nobody holds."""
    make_environment(store, name)
    lock = Path(store.root, "index", "building", name)
    lock.touch()
    return lock


def test_what_a_killed_builder_left_is_swept(store: Store) -> None:
    lock = killed_build(store)
    assert store.sweep() == 1
    assert not os.path.exists(store.folder_of(NAME))
    assert not os.path.exists(store.facts_of(NAME))
    assert not lock.exists()


def test_a_builder_killed_just_after_it_was_done_loses_nothing(store: Store) -> None:
    killed_build(store)
    store.publish("key", Environment(NAME, []))
    assert store.sweep() == 0
    assert store.environment("key") is not None


def test_what_is_being_built_elsewhere_is_not_swept(store: Store) -> None:
    with store.building(NAME):
        make_environment(store)
        assert Store(store.root).sweep() == 0
        assert os.path.exists(store.python_of(NAME))


def test_old_unfinished_downloads_and_records_are_swept_and_new_ones_are_not(store: Store) -> None:
    old = [Path(store.cache, ".tmpOld"), Path(store.root, "index", "requests", "x.json.0.part")]
    new = [Path(store.cache, ".tmpNew"), Path(store.root, "index", "requests", "y.json.0.part")]
    kept = [Path(store.cache, "wheels-v5")]
    for path in (*old, *new, *kept):
        path.mkdir()
    for path in (*old, *kept):
        os.utime(path, (1, 1))
    store.sweep()
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (*new, *kept))

import fcntl
import os
from pathlib import Path

from runner.environments import enter
from runner.identity import Identity

NOBODY_ELSE = Identity(None, None)
NAME = "0123456789abcdef" * 2


def environment(store: Path) -> Path:
    """A folder that looks like an environment, with facts beside it."""
    made = store / "envs" / NAME
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").touch()
    facts = store / "facts" / NAME / "interpreter-v5" / "aa"
    facts.mkdir(parents=True)
    (facts / "bb.msgpack").write_bytes(b"what uv knows")
    (store / "leases").mkdir()
    (store / "leases" / NAME).touch()
    return made


def test_what_is_known_of_an_environments_python_is_there_for_uv(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert enter(str(environment(tmp_path / "store")), str(cache), NOBODY_ELSE)
    assert (cache / "interpreter-v5" / "aa" / "bb.msgpack").read_bytes() == b"what uv knows"


def test_an_environment_that_has_gone_is_noticed(tmp_path: Path) -> None:
    made = environment(tmp_path / "store")
    (made / "bin" / "python").unlink()
    assert not enter(str(made), str(tmp_path / "cache"), NOBODY_ELSE)
    assert not os.path.exists(tmp_path / "cache")


def is_held(lease: Path) -> bool:
    with lease.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_it_is_held_as_long_as_the_process_lives_and_no_longer(tmp_path: Path) -> None:
    made = environment(tmp_path / "store")
    lease = tmp_path / "store" / "leases" / NAME
    child = os.fork()
    if not child:
        os._exit(0 if enter(str(made), str(tmp_path / "cache"), NOBODY_ELSE) and is_held(lease) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not is_held(lease)


def test_an_environment_that_is_being_removed_has_gone(tmp_path: Path) -> None:
    made = environment(tmp_path / "store")
    lease = tmp_path / "store" / "leases" / NAME
    with lease.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not enter(str(made), str(tmp_path / "cache"), NOBODY_ELSE)
    lease.unlink()
    assert not enter(str(made), str(tmp_path / "cache"), NOBODY_ELSE)


def test_an_environment_of_which_nothing_is_known_can_be_used_all_the_same(tmp_path: Path) -> None:
    made = environment(tmp_path / "store")
    (tmp_path / "store" / "facts" / NAME / "interpreter-v5" / "aa" / "bb.msgpack").unlink()
    assert enter(str(made), str(tmp_path / "cache"), NOBODY_ELSE)


def test_facts_are_taken_from_beside_the_environment_not_from_inside_it(tmp_path: Path) -> None:
    """A package can put files anywhere in its environment, links to what only the runner may read too."""
    made = environment(tmp_path / "store")
    (made / "interpreter-v5").mkdir()
    (made / "interpreter-v5" / "evil").symlink_to("/etc/shadow")
    assert enter(str(made), str(tmp_path / "cache"), NOBODY_ELSE)
    assert sorted(path.name for path in (tmp_path / "cache").rglob("*")) == [
        "aa",
        "bb.msgpack",
        "interpreter-v5",
    ]

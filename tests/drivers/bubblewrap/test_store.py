"""Where the store lies, and that nothing of somebody else's is taken for it."""

import os
import stat
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.store import cache_folder, make_store
from python_exec_sandbox.errors import CreateFailed


def test_the_cache_lies_where_the_person_says_or_in_their_home(tmp_path: Path) -> None:
    named = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    assert cache_folder(named, tmp_path) == tmp_path / "caches/python-exec-sandbox"
    for other in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(other, tmp_path) == tmp_path / ".cache/python-exec-sandbox"


def test_a_store_is_made_whole_again_and_what_sandboxes_see_can_only_be_entered(tmp_path: Path) -> None:
    root = tmp_path / "not/there/yet/store"
    for _ in range(2):
        store = make_store(root, is_root=False)
        assert [folder.name for folder in store.seen] == ["envs", "facts", "leases"]
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in store.seen] == [0o311] * 3
        store.seen[0].chmod(0o777)


@pytest.mark.parametrize("name", ["", "envs", "facts"])
def test_a_link_or_a_file_in_a_folders_place_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if name:
        root.mkdir()
    (root / name).symlink_to(elsewhere)
    with pytest.raises(CreateFailed, match=r"can't be used: .*store.* Move it away"):
        make_store(root, is_root=False)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700


def test_a_place_that_can_not_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CreateFailed, match="can't be made"):
        make_store(tmp_path / "file/store", is_root=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_roots_store_belongs_to_the_builder(tmp_path: Path) -> None:
    for _ in range(2):
        store = make_store(tmp_path / "store", is_root=True)
        owners = {folder.stat().st_uid for folder in (store.root, *store.seen)}
        assert len(owners) == 1 and 0 not in owners

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.unsandboxed.folders import make_folder, sweep
from python_exec_sandbox.drivers.unsandboxed.supervisor import folder as inside
from python_exec_sandbox.drivers.unsandboxed.supervisor import tree


def test_a_folder_is_for_this_user_alone_and_has_the_places_a_run_needs(tmp_path: Path) -> None:
    made = make_folder(tmp_path)
    os.close(made.lock_fd)
    assert Path(made.path).stat().st_mode & 0o777 == 0o700
    assert {path.name for path in Path(made.path).iterdir()} == {"lock", "work", "home", "tmp", "uv"}
    assert made.remove()
    assert not list(tmp_path.iterdir())


def test_a_living_ones_folder_is_never_swept_and_a_dead_ones_is(tmp_path: Path) -> None:
    living, dead = make_folder(tmp_path), make_folder(tmp_path)
    os.close(dead.lock_fd)
    assert sweep(tmp_path) == 1
    assert [str(path) for path in tmp_path.iterdir()] == [living.path]
    os.close(living.lock_fd)
    assert sweep(tmp_path) == 1


def test_what_is_none_of_ours_is_not_swept(tmp_path: Path) -> None:
    (tmp_path / "pes-theirs").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / inside.LOCK).touch()
    (tmp_path / "pes-link").symlink_to(tmp_path / "other")
    assert sweep(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_whatever_a_script_made_of_its_folder_it_goes_and_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    made = make_folder(tmp_path)
    work = Path(made.path, inside.WORK)
    (work / "link").symlink_to(outside)
    deep = work / "closed" / "deeper"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    deep.chmod(0)
    deep.parent.chmod(0o500)
    work.chmod(0o500)
    os.mkfifo(Path(made.path, "fifo"))
    os.close(made.lock_fd)
    assert made.remove()
    assert (outside / "kept").exists()


def test_a_folder_that_can_not_be_removed_leaves_its_neighbours_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    made = make_folder(tmp_path)
    os.close(made.lock_fd)

    def refuse(path: str, *_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy", path)

    monkeypatch.setattr(os, "rmdir", refuse)
    assert not made.remove()
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user, for whom modes count")
def test_a_script_that_closes_its_own_folder_does_not_keep_it() -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from python_exec_sandbox.drivers.unsandboxed.folders import make_folder, sweep\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "base = Path(sys.argv[1])\n"
        "first, second = make_folder(base), make_folder(base)\n"
        "for made in (first, second):\n"
        "    os.close(made.lock_fd); os.chmod(made.path, 0)\n"
        "assert first.remove()\n"
        "assert sweep(base) == 1\n"
        "assert not list(base.iterdir())\n"
    )
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o1777)
        done = subprocess.run(
            [sys.executable, "-c", program, base], capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not tree.HAS_PROC, reason="processes are found by /proc, which only Linux has")
def test_sweeping_ends_what_still_runs_with_that_home_and_nothing_else(tmp_path: Path) -> None:
    made = make_folder(tmp_path)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen(command, env={"HOME": inside.home_path(made.path)}) as stray,
        subprocess.Popen(command, env={"HOME": "/elsewhere"}) as other,
    ):
        try:
            assert sweep(tmp_path) == 0
            assert stray.poll() is None
            os.close(made.lock_fd)
            assert sweep(tmp_path) == 1
            assert stray.wait(timeout=10) == -9
            assert other.poll() is None
        finally:
            other.kill()
            stray.kill()

"""The thin part that touches the machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap.cgroup.kernel import RealKernel


def test_a_value_goes_into_a_file_that_is_there_and_makes_none(tmp_path: Path) -> None:
    there, missing = tmp_path / "pids.max", tmp_path / "cgroup.kill"
    there.touch()
    RealKernel().write(there, "64")
    assert there.read_text(encoding="utf-8") == "64"
    with pytest.raises(FileNotFoundError):
        RealKernel().write(missing, "1")
    assert not missing.exists()


def test_folders_are_listed_and_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    assert RealKernel().folders(tmp_path) == ["a", "b"]
    assert RealKernel().folders(tmp_path / "missing") == []


def test_an_ordinary_folder_is_not_delegated(tmp_path: Path) -> None:
    assert not RealKernel().is_delegated(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and process descriptors")
def test_a_process_of_another_group_is_never_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        RealKernel().end(stranger.pid, "sandbox_1_2_3_4")
        stranger.communicate(b"\n", timeout=20)
    assert stranger.returncode == 0
    RealKernel().end(stranger.pid, "sandbox_1_2_3_4")  # gone: nothing happens

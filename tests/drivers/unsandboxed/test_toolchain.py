import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from python_exec_sandbox.drivers.unsandboxed.toolchain import find_toolchain, find_uv, parse_pythons
from python_exec_sandbox.errors import ConfigurationError, CreateFailed


def entry(version: str, path: str | None, **more: Any) -> dict[str, Any]:
    major, minor, patch = map(int, version.split("."))
    parts = {"major": major, "minor": minor, "patch": patch}
    return {
        "version_parts": parts,
        "path": path,
        "implementation": "cpython",
        "variant": "default",
        **more,
    }


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_each_minor_version_has_its_newest_patch_first_and_only_ordinary_builds_count() -> None:
    listed = [
        entry("3.13.1", "/b"),
        entry("3.13.9", "/a"),
        entry("3.9.2", "/old"),
        entry("3.14.0", "/free", variant="freethreaded"),
        entry("3.11.9", "/pypy", implementation="pypy"),
        entry("3.12.0", None),
        entry("3.7.9", "/too-old"),
    ]
    assert parse_pythons(json.dumps(listed)) == {"3.9": ["/old"], "3.13": ["/a", "/b"]}


@pytest.mark.parametrize("listed", ["", "{}x", "[1]", '[{"path": "/x"}]', '{"a": 1}', "[null]"])
def test_what_is_no_list_of_pythons_is_an_error_that_suspects_uvs_age(listed: str) -> None:
    with pytest.raises(CreateFailed, match="is it a recent uv"):
        parse_pythons(listed)


def test_uv_is_taken_from_where_it_was_named(tmp_path: Path) -> None:
    uv = program(tmp_path / "my-uv", "#!/bin/sh\n")
    assert find_uv(str(uv)) == str(uv.resolve())
    with pytest.raises(ConfigurationError, match=r"--uv-path .*absent is not an executable file"):
        find_uv(str(tmp_path / "absent"))


def test_uv_is_found_on_path_and_else_beside_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    beside = Path(find_uv("uv"))
    assert beside.name == "uv" and beside.is_file() and beside.parent != tmp_path
    mine = program(tmp_path / "uv", "#!/bin/sh\n")
    assert find_uv("uv") == str(mine)
    with pytest.raises(ConfigurationError, match="no program other-uv on PATH"):
        find_uv("other-uv")


def test_a_python_that_does_not_run_is_left_out_and_a_shim_is_seen_through(tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "#!/bin/sh\nexit 127\n")
    shim = program(tmp_path / "shim", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    listed = json.dumps(
        [entry("3.12.3", str(broken)), entry("3.11.9", str(broken)), entry("3.11.7", str(shim))]
    )
    uv = program(
        tmp_path / "uv",
        f"#!/bin/sh\ncase $1 in cache) echo /the/cache;; python) cat <<'END'\n{listed}\nEND\n;; esac\n",
    )
    found = find_toolchain(str(uv))
    assert found.cache == "/the/cache"
    assert dict(found.pythons) == {"3.11": sys.executable}


def test_a_uv_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    uv = program(tmp_path / "uv", "#!/bin/sh\necho out of order >&2; exit 3\n")
    with pytest.raises(CreateFailed, match=r"uv cache dir ended with 3: out of order"):
        find_toolchain(str(uv))

"""With the Python that runs the tests: what is compiled, what it tells, and what is shared with others."""

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from builder.bytecode import compile_modules, existing, share

TAG = str(sys.implementation.cache_tag)


def archive(cache: Path, name: str, files: dict[str, str]) -> Path:
    """A package as uv keeps it unpacked in its cache."""
    folder = cache / "archive-v0" / f"id-{name}"
    for path, text in ({f"{name}-1.0.dist-info/METADATA": f"Name: {name}\n"} | files).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def install(package: Path, site: Path) -> None:
    """By hard links, as uv does; a file of another package is replaced."""
    for path in package.rglob("*"):
        if path.is_file():
            target = site / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            os.link(path, target)


def build(site: Path, cache: Path) -> int:
    """As the builder does once packages are installed; how many files were shared."""
    brought = existing(str(site))
    compile_modules(sys.executable, str(site))
    return share(str(site), str(cache), brought, TAG)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_bytecode_is_there_tells_no_path_and_is_used(tmp_path: Path, cache: Path) -> None:
    site = tmp_path / "secret-name" / "site"
    install(archive(cache, "pack", {"pack/__init__.py": "def fail(): 1 / 0\n"}), site)
    build(site, cache)
    compiled = site / "pack" / "__pycache__" / f"__init__.{TAG}.pyc"
    assert b"secret-name" not in compiled.read_bytes()
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import pack; print(pack.__cached__); pack.fail()"
    done = subprocess.run(
        [sys.executable, "-I", "-v", "-c", code], capture_output=True, text=True, timeout=20, check=False
    )
    assert f"{compiled} matches" in done.stderr, "it is up to date"
    assert f'File "{site}/pack/__init__.py", line 1, in fail' in done.stderr, "tracebacks name the real file"


def test_tests_of_packages_are_left_uncompiled(tmp_path: Path, cache: Path) -> None:
    site = tmp_path / "site"
    install(
        archive(cache, "pack", {"pack/core.py": "", "pack/tests/big.py": "", "pack/testing/x.py": ""}), site
    )
    build(site, cache)
    compiled = sorted(path.name for path in site.rglob("*.pyc"))
    assert compiled == [f"core.{TAG}.pyc", f"x.{TAG}.pyc"]


def test_a_module_that_cannot_be_compiled_stays_as_it_is(tmp_path: Path, cache: Path) -> None:
    site = tmp_path / "site"
    install(archive(cache, "pack", {"pack/bad.py": "print 'old'\n", "pack/good.py": ""}), site)
    build(site, cache)
    assert [path.name for path in site.rglob("*.pyc")] == [f"good.{TAG}.pyc"]


def test_code_of_packages_does_not_run_while_they_are_compiled(tmp_path: Path, cache: Path) -> None:
    site = tmp_path / "site"
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w').close()\n"
    names = ("evil.pth", "sitecustomize.py", "usercustomize.py", "compileall.py", "encodings/__init__.py")
    files = dict.fromkeys(names, code) | {"evil.pth": f"import os; {code}"}
    install(archive(cache, "evil", files), site)
    build(site, cache)
    assert list(site.rglob("*.pyc")), "they were compiled"
    assert not mark.exists()


def test_the_next_environment_with_the_same_package_has_its_bytecode_from_the_start(
    tmp_path: Path, cache: Path
) -> None:
    package = archive(cache, "pack", {"pack/__init__.py": "x = 1\n", "pack/more.py": ""})
    install(package, tmp_path / "one")
    assert build(tmp_path / "one", cache) == 2
    install(package, tmp_path / "two")
    compiled = f"pack/__pycache__/more.{TAG}.pyc"
    assert (tmp_path / "two" / compiled).samefile(tmp_path / "one" / compiled)
    assert build(tmp_path / "two", cache) == 0


def test_bytecode_that_a_package_brings_for_anothers_module_is_not_shared(
    tmp_path: Path, cache: Path
) -> None:
    good = archive(cache, "good", {"good.py": "x = 'good'\n"})
    times = os.stat(good / "good.py")
    forged = tmp_path / "good.py"
    forged.write_text("x = 'evil'\n")
    os.utime(forged, (times.st_atime, times.st_mtime))
    evil = archive(cache, "evil", {})
    bytecode = evil / "__pycache__" / f"good.{TAG}.pyc"
    bytecode.parent.mkdir()
    py_compile.compile(str(forged), cfile=str(bytecode))
    site = tmp_path / "site"
    install(good, site)
    install(evil, site)
    build(site, cache)
    assert not (good / "__pycache__").exists(), "it looked up to date, so that it stayed where it was"


def test_a_module_that_another_package_replaced_is_not_shared_as_the_first_ones(
    tmp_path: Path, cache: Path
) -> None:
    good = archive(cache, "good", {"good.py": "x = 'good'\n"})
    evil = archive(cache, "evil", {"good.py": "x = 'evil'\n"})
    install(good, tmp_path / "site")
    install(evil, tmp_path / "site")
    build(tmp_path / "site", cache)
    assert not (good / "__pycache__").exists()
    assert (evil / "__pycache__" / f"good.{TAG}.pyc").exists()


def test_a_folder_for_bytecode_that_is_a_link_is_not_followed(tmp_path: Path, cache: Path) -> None:
    victim = archive(cache, "victim", {"mod.py": ""})
    (victim / "__pycache__").mkdir()
    evil = archive(cache, "evil", {"mod.py": "x = 'evil'\n"})
    (evil / "__pycache__").symlink_to(victim / "__pycache__")
    install(evil, tmp_path / "site")
    build(tmp_path / "site", cache)
    assert list((victim / "__pycache__").iterdir()) == []

import os
import sys
from pathlib import Path

import pytest

from builder.installer import InstallerFailed
from builder.program import Program, Request
from builder.pythons import PythonMissing, Pythons
from builder.store import Store
from tests.builder.test_program import FakeInstaller

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class Fetching(FakeInstaller):
    """Fetches a link to the running Python, with a module of its own."""

    def fetch(self, version: str, folder: str, mirror: str) -> None:
        self._called(f"fetch {version} from {mirror or 'there'}")
        home = Path(folder, f"cpython-{version}.1-linux-x86_64-gnu")
        for part in ("bin", f"lib/python{version}"):
            (home / part).mkdir(parents=True)
        (home / "lib" / f"python{version}" / "module.py").write_text("x = 1\n")
        (home / "bin" / f"python{version}").symlink_to(sys.executable)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def test_a_python_of_the_image_is_not_fetched(store: Store) -> None:
    installer = Fetching()
    assert Pythons({"3.13": "/usr/bin/python3.13"}, store, installer).find("3.13") == "/usr/bin/python3.13"  # type: ignore[arg-type]  # a fake
    assert installer.calls == []


def test_another_one_is_fetched_once_and_compiled(store: Store) -> None:
    installer = Fetching()
    path = Pythons({}, store, installer).find(VERSION, "https://mirror.example")  # type: ignore[arg-type]  # a fake
    assert path.startswith(store.pythons)
    assert list(Path(store.pythons).rglob("module.*.pyc"))
    assert Pythons({}, store, installer).find(VERSION) == path  # type: ignore[arg-type]  # a fake
    assert installer.calls == [f"fetch {VERSION} from https://mirror.example"]
    os.unlink(path)
    with pytest.raises(FileExistsError):  # the fake's word for: it is fetched again
        Pythons({}, store, installer).find(VERSION)  # type: ignore[arg-type]  # a fake


def test_what_can_not_be_fetched_is_no_fault_of_the_requirements(store: Store) -> None:
    installer = Fetching()
    installer.fail["fetch 3.8 from there"] = InstallerFailed(
        "error: No download found for request: cpython-3.8"
    )
    program = Program(store, installer, {}, lambda _: None)  # type: ignore[arg-type]  # a fake
    answer = program.answer(Request("3.8", [], 1.0))
    assert answer["cause"] == "python"
    assert "No download found" in str(answer["text"])


def test_a_download_without_the_python_is_noticed(store: Store) -> None:
    class Empty(Fetching):
        def fetch(self, version: str, folder: str, mirror: str) -> None: ...

    with pytest.raises(PythonMissing, match=r"python3\.8"):
        Pythons({}, store, Empty()).find("3.8")  # type: ignore[arg-type]  # a fake


def test_a_fetched_python_alone_is_an_environment_and_goes_when_the_store_is_emptied(store: Store) -> None:
    installer = Fetching()
    program = Program(store, installer, {}, lambda _: None)  # type: ignore[arg-type]  # a fake
    answer = program.answer(Request(VERSION, [], 1.0))
    assert (answer["type"], answer["packages"], answer["fresh_seconds"]) == ("built", [], None)
    assert program.answer(Request(VERSION, [], 1.0))["reused"] is True
    assert not {"resolve", "install"} & set(installer.calls)
    assert program.answer(Request("", [], 1.0, "trim"))["type"] == "trimmed"
    assert not os.path.exists(store.pythons)
    emptied = Program(Store(store.root), Fetching(), {}, lambda _: None)  # type: ignore[arg-type]  # a fake
    assert emptied.answer(Request(VERSION, [], 1.0))["type"] == "built"

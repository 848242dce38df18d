import zipfile
from pathlib import Path

from runner.prepare import compiled


def _packed(path: Path, modules: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in modules.items():
            file.writestr(name, content)
    return str(path)


def test_what_is_compiled_already_is_kept_by_a_later_trial(tmp_path: Path) -> None:
    sources = {"__main__.py": b"import runner.part", "runner/part.py": b"VALUE = 1"}
    first = compiled(_packed(tmp_path / "sources.zip", sources))
    assert set(first) == {"__main__.pyc", "runner/part.pyc"}
    assert compiled(_packed(tmp_path / "first.zip", first)) == first

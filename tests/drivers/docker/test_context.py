"""The image's tag follows its content, and nothing else."""

import io
import tarfile
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.docker.context import packaged_context, read_context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runner").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    (tmp_path / "runner" / "a.py").write_text("pass\n")
    return tmp_path


def test_the_same_content_has_the_same_tag_and_archive(folder: Path) -> None:
    before = read_context(folder, None)
    (folder / "runner" / "__pycache__").mkdir()
    (folder / "runner" / "__pycache__" / "a.pyc").write_bytes(b"x")
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "Dockerfile").touch()
    (folder / "Dockerfile").chmod(0o600)
    after = read_context(folder, None)
    assert after.tag == before.tag
    assert after.archive() == before.archive()
    assert before.tag.startswith("python-exec-sandbox:")
    assert len(before.tag.partition(":")[2]) == 16


def test_whatever_matters_changes_the_tag(folder: Path) -> None:
    tags = {read_context(folder, None).tag, read_context(folder, "other:1").tag}
    (folder / "runner" / "a.py").write_text("pass # \n")
    tags.add(read_context(folder, None).tag)
    (folder / "runner" / "a.py").chmod(0o755)
    tags.add(read_context(folder, None).tag)
    (folder / "runner" / "a.py").rename(folder / "runner" / "b.py")
    tags.add(read_context(folder, None).tag)
    assert len(tags) == 5


def test_the_archive_holds_the_files_with_plain_modes(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(read_context(folder, None).archive())) as archive:
        assert {entry.name: entry.mode for entry in archive} == {"Dockerfile": 0o644, "runner/a.py": 0o644}
        assert {entry.uid for entry in archive} == {0}


def test_the_packaged_folder_is_found_and_has_what_the_build_needs() -> None:
    names = {file.name for file in read_context(packaged_context(), None).files}
    assert "Dockerfile" in names
    assert not any("__pycache__" in name for name in names)

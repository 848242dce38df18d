"""The runner as one file, a zip archive that Python executes, and the builder's files."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import python_exec_sandbox
from python_exec_sandbox.errors import CreateFailed

# The same bytes whenever they are made from the same files.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def packaged_runner() -> bytes:
    """The runner's sources. Reads files: call it in a worker thread.

    Raises:
        CreateFailed: they are not where they are installed.
    """
    return pack(_packaged("runner"))


def packaged_builder() -> dict[str, bytes]:
    """The builder's files, by their paths in its folder; otherwise as above."""
    return _packaged("builder", "warm-up.txt")


def _packaged(part: str, *more: str) -> dict[str, bytes]:
    package = Path(python_exec_sandbox.__file__).parent
    # In the wheel, and in an editable install.
    for folder in (package / "sandbox_image", package.parent.parent / "sandbox_image"):
        if (folder / "__main__.py").is_file():
            names = [f"{part}/{path.name}" for path in (folder / part).glob("*.py")]
            return {name: (folder / name).read_bytes() for name in ("__main__.py", *more, *sorted(names))}
    raise CreateFailed(f"The sandbox's {part} is missing from this installation: install the package again.")


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of ``files``, uncompressed: it is read more often than it is moved."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return buffer.getvalue()

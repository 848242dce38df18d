"""The folder that the sandbox image is built from, as a tag and as a tar archive."""

import hashlib
import importlib.metadata
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import python_exec_sandbox
from python_exec_sandbox.errors import ImageUnavailable

REPOSITORY = "python-exec-sandbox"

# Enough that two contents never meet by chance, short enough to read.
_TAG_DIGITS = 16

# What an installer or an interpreter leaves beside our files; it would change the tag from machine to machine.
_FOREIGN = ("__pycache__", ".pyc", ".DS_Store")


@dataclass(frozen=True, slots=True)
class ContextFile:
    """``mode`` is 0o755 or 0o644: other bits depend on who unpacked the package."""

    name: str
    mode: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The files, sorted by name, and the build's arguments."""

    files: tuple[ContextFile, ...]
    arguments: Mapping[str, str]

    @property
    def tag(self) -> str:
        """The image's name; the same content and arguments always have the same one."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{len(file.name)} {file.name} {file.mode:o} {len(file.data)}\n".encode())
            digest.update(file.data)
        for name, value in sorted(self.arguments.items()):
            digest.update(f"{len(name)} {name} {len(value)} {value}\n".encode())
        return f"{REPOSITORY}:{digest.hexdigest()[:_TAG_DIGITS]}"

    def archive(self) -> bytes:
        """A tar archive; equal contents give equal bytes, so that the engine's build cache holds."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for file in self.files:
                entry = tarfile.TarInfo(file.name)
                entry.mode, entry.size = file.mode, len(file.data)
                archive.addfile(entry, io.BytesIO(file.data))
        return buffer.getvalue()


def read_context(folder: Path, base_image: str | None) -> BuildContext:
    """The build context in ``folder``, over ``base_image`` instead of the Dockerfile's own if it is given.

    Blocks for a moment: call it in a worker thread.

    Raises:
        ImageUnavailable: the folder can't be read.
    """
    try:
        files = tuple(
            ContextFile(path.relative_to(folder).as_posix(), _mode(path), path.read_bytes())
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and not _is_foreign(path.relative_to(folder))
        )
    except OSError as error:
        raise ImageUnavailable(f"The files of the sandbox image can't be read: {error}.") from error
    arguments = {"UV_IMAGE": f"astral/uv:{importlib.metadata.version('uv')}"}
    if base_image is not None:
        arguments["BASE_IMAGE"] = base_image
    return BuildContext(files, arguments)


def packaged_context() -> Path:
    """The folder ``sandbox_image``: inside an installed package, beside ``server/`` in a working copy.

    Raises:
        ImageUnavailable: it is in neither place.
    """
    package = Path(python_exec_sandbox.__file__).parent
    for folder in (package / "sandbox_image", package.parent.parent / "sandbox_image"):
        if (folder / "Dockerfile").is_file():
            return folder
    raise ImageUnavailable(
        "The installed package lacks the folder sandbox_image, so that no sandbox image can be built. "
        "Install python-exec-sandbox again, or name an image with --image."
    )


def _mode(path: Path) -> int:
    return 0o755 if path.stat().st_mode & 0o111 else 0o644


def _is_foreign(path: Path) -> bool:
    return any(part.endswith(_FOREIGN) for part in path.parts)

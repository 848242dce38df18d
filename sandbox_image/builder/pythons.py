"""Pythons that the image lacks: fetched by uv into the store on their first use."""

import glob
import os

from .bytecode import compile_modules
from .files import read_record, write_record
from .installer import Installer, InstallerFailed
from .store import Store


class PythonMissing(Exception):
    """There is none of that version, and none could be fetched; the text is uv's."""


class Pythons:
    """Interpreters by minor version: those of the image, and those in the store."""

    def __init__(self, of_image: dict[str, str], store: Store, installer: Installer) -> None:
        self._of_image = of_image
        self._store = store
        self._installer = installer

    def find(self, version: str, mirror: str = "") -> str:
        """The path of a Python ``version``, fetched from ``mirror``, or from where uv gets them, if need be.

        Raises:
            PythonMissing: it can't be had.
        """
        if path := self._of_image.get(version) or self._fetched(version):
            return path
        with self._store.locked(f"python-{version}", lambda: None):
            return self._fetched(version) or self._fetch(version, mirror)

    def _fetched(self, version: str) -> str | None:
        match read_record(self._store.python_record(version)):
            case {"path": str(path)} if os.path.exists(path):
                return path
        return None

    def _fetch(self, version: str, mirror: str) -> str:
        try:
            self._installer.fetch(version, self._store.pythons, mirror)
        except InstallerFailed as error:
            raise PythonMissing(str(error)) from None
        folders = glob.glob(os.path.join(self._store.pythons, f"cpython-{version}.*"))
        found = [os.path.join(folder, "bin", f"python{version}") for folder in folders]
        path = next(filter(os.path.exists, found), None)
        if path is None:
            raise PythonMissing(f"error: what was fetched has no python{version}")
        # Scripts could not keep what they compile, and each would do so again.
        compile_modules(path, os.path.join(os.path.dirname(os.path.dirname(path)), "lib", f"python{version}"))
        write_record(self._store.python_record(version), {"path": path})
        return path

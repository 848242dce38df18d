"""Lets a sandbox's user reach what lies in folders that only root can enter (a Python under root's home).

In a mount namespace of its own each such path gets a second place; then the user changes, and bwrap starts.
"""

import select
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from python_exec_sandbox.drivers.bubblewrap.failure import explain
from python_exec_sandbox.drivers.bubblewrap.host import Bwrap
from python_exec_sandbox.errors import CreateFailed

# Folders that every system has and that hardly anything lies in.
_PLACES = ("/mnt", "/media", "/srv", "/opt", "/home")

# Arguments: the folder, then pairs of a path and its place under the folder. It lives as long as its input is open.
_SCRIPT = """
set -e
umask 022
folder=$1
shift
mount -t tmpfs -o mode=0755,size=1m none "$folder"
while [ $# != 0 ]; do
    place="$folder/$2"
    mkdir -p "${place%/*}"
    if [ -d "$1" ]; then mkdir -p "$place"; else : > "$place"; fi
    mount --bind "$1" "$place"
    shift 2
done
echo ready
exec cat
"""

# A mount takes milliseconds.
_SECONDS = 10.0

SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def is_reachable(path: Path) -> bool:
    """Whether any user can read ``path``, through all the folders that lead to it."""
    try:
        mode = path.stat().st_mode
        if not mode & stat.S_IROTH or (stat.S_ISDIR(mode) and not mode & stat.S_IXOTH):
            return False
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Stage:
    """Where each path is found once it was staged; ``folder`` is empty when nothing has to be."""

    folder: str = ""
    places: Mapping[Path, str] = field(default_factory=dict)

    def path(self, source: Path) -> str:
        """Where ``source`` is to be found."""
        place = self.places.get(source)
        return f"{self.folder}/{place}" if place else str(source)


class MountNamespace:
    """Holds a mount namespace in which a stage is set; it ends with this process, whatever becomes of it."""

    def __init__(self, stage: Stage) -> None:
        """Blocks for some milliseconds: call it in a worker thread.

        Raises:
            CreateFailed: this root may not mount, or a tool is missing.
        """
        pairs = [word for source, place in stage.places.items() for word in (str(source), place)]
        command = ["unshare", "--mount", "--", "/bin/sh", "-c", _SCRIPT, "stage", stage.folder, *pairs]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": SEARCH_PATH},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise CreateFailed(f"Pythons under root's home can't be shown to sandboxes: {error}") from error
        assert self._process.stdout is not None
        if (
            not select.select([self._process.stdout], [], [], _SECONDS)[0]
            or not self._process.stdout.readline()
        ):
            self._process.kill()
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode("utf-8", "replace")
            self.close()
            raise CreateFailed(f"Pythons under root's home can't be shown to sandboxes: {explain(said)}")

    def command(self, user: int, command: list[str]) -> list[str]:
        """Starts ``command`` as ``user`` in the namespace, with the process id of its starter."""
        enter = ["nsenter", f"--mount=/proc/{self._process.pid}/ns/mnt", "--"]
        return [
            *enter,
            "setpriv",
            "--reuid",
            str(user),
            "--regid",
            str(user),
            "--clear-groups",
            "--",
            *command,
        ]

    def close(self) -> None:
        """End it; again and again is fine."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


def plan_stage(bwrap: Bwrap, sources: Iterable[Path]) -> Stage:
    """The stage for another user than root. Looks at files: call it in a worker thread.

    Raises:
        CreateFailed: there is no folder to put it in.
    """
    needed = [source for source in dict.fromkeys(sources) if not is_reachable(source)]
    places = {source: f"{number}/{source.name}" for number, source in enumerate(needed)}
    if not is_reachable(bwrap.path):
        # Its libraries are two folders up, beside its package.
        places[bwrap.path] = "bwrap/_bin/bwrap"
        places |= {folder: folder.name for folder in bwrap.beside}
    if not places:
        return Stage()
    return Stage(_folder(places), places)


def _folder(sources: Iterable[Path]) -> str:
    paths = [str(source) for source in sources]
    for place in _PLACES:
        if Path(place).is_dir() and not any(path.startswith(f"{place}/") for path in paths):
            return place
    raise CreateFailed(
        "Python or uv lie in folders that only root can enter, and there is no free folder to show them in: install "
        "them where everybody can read them (/usr/local), or run the server as an ordinary user."
    )

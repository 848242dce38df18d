"""The real engine, asked with the SDK itself: what a test states about containers doesn't rest on our gateway."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from requests.exceptions import ConnectionError as ConnectionFailed
from requests.exceptions import ReadTimeout

from python_exec_sandbox.drivers.docker import labels
from python_exec_sandbox.drivers.docker.context import packaged_context, read_context
from python_exec_sandbox.drivers.docker.discovery import find_engines, surroundings
from python_exec_sandbox.drivers.identity import boot_id
from python_exec_sandbox.errors import ConfigurationError

ANSWER_SECONDS = 10
"""An engine that needs longer for a ping is no engine to test with."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered a ping."""

    address: str
    client: docker.DockerClient

    def containers_of(self, pid: int) -> list[Container]:
        """All containers, running or not, that the server process ``pid`` of this PID namespace made."""
        return self.labelled(f"{labels.PID}={pid}", f"{labels.BOOT_ID}={boot_id()}")

    def labelled(self, *wanted: str) -> list[Container]:
        """All containers, running or not, that carry every label ``name=value`` of ``wanted``."""
        return self.client.containers.list(all=True, filters={"label": list(wanted)}, ignore_removed=True)


def processes_of(container: Container) -> str:
    """The command lines of a container's processes, a line each; empty when it is not running (any more)."""
    try:
        return "\n".join(row[-1] for row in container.top()["Processes"] or ())
    except APIError:
        return ""


def sandbox_image(engine: Engine) -> str:
    """The tag of this tree's own sandbox image, which some server has built on the engine before."""
    tag = read_context(packaged_context(), None).tag
    engine.client.images.get(tag)
    return tag


def left_after(containers: Iterable[Container], seconds: float) -> list[str]:
    """Names of those ``containers`` that are still there after ``seconds`` each; they are removed then."""
    left = []
    for container in containers:
        try:
            container.wait(condition="removed", timeout=seconds)
        except NotFound:
            continue
        except (ReadTimeout, ConnectionFailed):
            left.append(container.name or container.id or "nameless")
            with contextlib.suppress(NotFound):
                container.remove(force=True)
    return left


def find_engine() -> Engine | str:
    """The engine that the server would find, or one line that says why there is none."""
    try:
        findings = find_engines(surroundings(), None)
    except ConfigurationError as error:
        return str(error)
    failures = {}
    for candidate in findings.candidates:
        try:
            _knock(candidate.address)
            client = docker.DockerClient(base_url=candidate.address, timeout=ANSWER_SECONDS)
            client.ping()
        except (DockerException, OSError) as error:
            failures[candidate.address] = type(error).__name__
        else:
            return Engine(candidate.address, client)
    tried = ", ".join(f"{address} ({why})" for address, why in failures.items())
    return f"no container engine answers: {f'tried {tried}' if tried else 'none of the known sockets exists'}"


def _knock(address: str) -> None:
    """Raise ``OSError`` where nobody listens: the SDK leaves its socket open then, which is a warning here."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(ANSWER_SECONDS)
            probe.connect(address.removeprefix("unix://"))


@contextlib.contextmanager
def nothing_left(engine: Engine, pids: list[int], seconds: float) -> Iterator[None]:
    """Within it servers add their process ids to ``pids``; afterwards none of their containers may be left."""
    try:
        yield
    finally:
        left = {pid: names for pid in pids if (names := left_after(engine.containers_of(pid), seconds))}
    assert not left, f"containers still there {seconds:g} s after their server ended (by its pid): {left}"

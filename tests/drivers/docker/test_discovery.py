"""Where an engine is looked for, over a machine that exists on paper only."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from python_exec_sandbox.drivers.docker.discovery import Surroundings, find_engines, surroundings
from python_exec_sandbox.errors import ConfigurationError

HOME = Path("/home/ada")


def machine(
    *,
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    sockets: tuple[str, ...] = (),
) -> Surroundings:
    texts = files or {}
    return Surroundings(
        environ=environ or {},
        home=HOME,
        uid=1000,
        read=lambda path: texts.get(str(path)),
        is_socket=lambda path: str(path) in sockets,
    )


def context_files(name: str, host: object) -> dict[str, str]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {
        f"{HOME}/.docker/config.json": json.dumps({"currentContext": name, "credsStore": "broken"}),
        f"{HOME}/.docker/contexts/meta/{digest}/meta.json": json.dumps(
            {"Name": name, "Endpoints": {"docker": {"Host": host}}}
        ),
    }


def addresses(view: Surroundings, option: str | None = None) -> list[str]:
    return [candidate.address for candidate in find_engines(view, option).candidates]


def test_an_option_is_the_only_candidate() -> None:
    view = machine(environ={"DOCKER_HOST": "unix:///b"}, sockets=("/var/run/docker.sock",))
    assert addresses(view, "unix:///a") == ["unix:///a"]


def test_a_bare_path_is_a_socket() -> None:
    assert addresses(machine(), "/a.sock") == ["unix:///a.sock"]


def test_docker_host_is_the_only_candidate() -> None:
    view = machine(environ={"DOCKER_HOST": "tcp://127.0.0.1:2375"}, sockets=("/var/run/docker.sock",))
    assert addresses(view) == ["tcp://127.0.0.1:2375"]


def test_docker_context_beats_docker_host_as_for_the_docker_command() -> None:
    view = machine(
        environ={"DOCKER_CONTEXT": "colima", "DOCKER_HOST": "unix:///b"},
        files=context_files("colima", "unix:///colima.sock"),
    )
    assert addresses(view) == ["unix:///colima.sock"]


def test_the_current_context_comes_before_the_known_sockets() -> None:
    view = machine(files=context_files("colima", "unix:///c.sock"), sockets=("/var/run/docker.sock",))
    assert addresses(view) == ["unix:///c.sock", "unix:///var/run/docker.sock"]


@pytest.mark.parametrize("host", ["ssh://far.example", 7, None, ""])
def test_a_current_context_of_no_use_does_not_hide_a_running_engine(host: object) -> None:
    view = machine(files=context_files("odd", host), sockets=("/var/run/docker.sock",))
    assert addresses(view) == ["unix:///var/run/docker.sock"]


@pytest.mark.parametrize("text", ["", "not json", "[1]", '{"currentContext": 7}', "[" * 100_000])
def test_a_broken_configuration_of_the_docker_command_is_passed_over(text: str) -> None:
    view = machine(files={f"{HOME}/.docker/config.json": text}, sockets=("/var/run/docker.sock",))
    assert addresses(view) == ["unix:///var/run/docker.sock"]


@pytest.mark.parametrize(
    "socket",
    [
        "/var/run/docker.sock",
        "/home/ada/.docker/run/docker.sock",
        "/home/ada/.docker/desktop/docker.sock",
        "/home/ada/.orbstack/run/docker.sock",
        "/home/ada/.colima/default/docker.sock",
        "/run/user/1000/docker.sock",
        "/run/user/1000/podman/podman.sock",
        "/run/podman/podman.sock",
    ],
)
def test_each_products_socket_is_found_without_any_environment(socket: str) -> None:
    assert addresses(machine(sockets=(socket,))) == [f"unix://{socket}"]


def test_the_runtime_folder_of_the_session_is_used_where_it_is_told() -> None:
    view = machine(environ={"XDG_RUNTIME_DIR": "/tmp/run"}, sockets=("/tmp/run/docker.sock",))
    assert addresses(view) == ["unix:///tmp/run/docker.sock"]


@pytest.mark.parametrize("address", ["ssh://me@far.example", "https://10.0.0.1:2376", "npipe:////./pipe/x"])
def test_an_address_of_a_kind_that_is_not_supported_says_what_to_do(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"isn't supported yet\. Forward its socket"):
        find_engines(machine(), address)


@pytest.mark.parametrize("address", ["docker", "unix://", "ftp://x"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="expected unix:///path/to/socket"):
        find_engines(machine(), address)


def test_a_context_that_does_not_exist_is_an_error_when_it_was_asked_for() -> None:
    with pytest.raises(ConfigurationError, match=r"'gone' doesn't exist in /home/ada/\.docker"):
        find_engines(machine(environ={"DOCKER_CONTEXT": "gone"}), None)


def test_the_explanation_lists_what_was_tried_and_what_to_do() -> None:
    findings = find_engines(machine(sockets=("/var/run/docker.sock",)), None)
    text = findings.explain({"unix:///var/run/docker.sock": "permission denied"})
    assert "unix:///var/run/docker.sock (the engine of this machine): permission denied" in text
    assert "nothing at /home/ada/.docker/run/docker.sock" in text
    assert "--docker-host" in text


def test_without_home_the_user_database_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert surroundings().home.is_absolute()

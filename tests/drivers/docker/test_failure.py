"""Texts of real engines, and what is made of them."""

import errno

import pytest

from python_exec_sandbox.drivers.docker.failure import (
    EngineRefused,
    advice_for,
    connect_advice,
    create_failure,
)
from python_exec_sandbox.errors import CreateFailed, ImageUnavailable


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Unknown runtime specified runsc", "leave out --runtime"),
        ("unknown or invalid runtime name: runsc", "leave out --runtime"),
        ("write /var/lib/docker/tmp/x: no space left on device", "docker system prune"),
        ("Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", "lower --cpus"),
        ("Minimum memory limit allowed is 6MB", "raise --memory"),
        (
            'invalid mount config for type "bind": bind source path does not exist: /home/a/ca.pem',
            "CA bundle's file",
        ),
        (
            "NanoCPUs can not be set, as your kernel does not support CPU CFS scheduler or the cgroup is not mounted",
            "control group",
        ),
        ("network bridge not found", "--network none"),
        ("standard_init_linux.go:228: exec user process caused: exec format error", "architecture"),
        (
            "OCI runtime create failed: exec: stat /opt/sandbox/python: no such file or directory: unknown",
            "leave --image unset",
        ),
        ("something nobody has seen", ""),
    ],
)
def test_a_known_refusal_says_what_to_do(said: str, advice: str) -> None:
    failure = create_failure(EngineRefused("start a container", 500, said), "IMAGE")
    assert isinstance(failure, CreateFailed)
    assert advice in str(failure)
    assert said in str(failure)
    assert bool(advice_for(said)) is bool(advice)


def test_a_missing_image_is_told_apart_from_other_refusals() -> None:
    failure = create_failure(EngineRefused("create a container", 404, "No such image: sha256:12"), "mine:1")
    assert isinstance(failure, ImageUnavailable)
    assert "mine:1" in str(failure)


@pytest.mark.parametrize(
    ("status", "said", "transient"),
    [
        (500, "Get https://registry.example/v2/: net/http: TLS handshake timeout", True),
        (500, "unexpected EOF", True),
        (500, "toomanyrequests: You have reached your pull rate limit", True),
        (503, "", True),
        (404, "manifest for example/image:1 not found: manifest unknown", False),
        (500, "pull access denied for image, repository does not exist", False),
    ],
)
def test_only_passing_faults_are_worth_another_try(status: int, said: str, transient: bool) -> None:
    assert EngineRefused("pull", status, said).is_transient is transient


def test_a_removal_under_way_is_not_a_conflict_of_another_kind() -> None:
    assert EngineRefused("remove", 409, "removal of container 12 is already in progress").is_being_removed
    assert not EngineRefused("remove", 409, "You cannot remove a running container 12").is_being_removed


def test_an_endless_text_is_cut() -> None:
    assert len(EngineRefused("build", 500, "x" * 100_000).said) == 600


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "usermod -aG docker"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "isn't running"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "doesn't exist"),
        (OSError("odd"), "odd"),
    ],
)
def test_a_failed_connection_is_explained_through_the_layers_around_it(cause: OSError, words: str) -> None:
    assert words in connect_advice(OSError(RuntimeError("Connection aborted.", cause)))

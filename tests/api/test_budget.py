import logging

import pytest

from python_exec_sandbox.api import backends
from python_exec_sandbox.api.budget import machine_memory, memory_budget
from python_exec_sandbox.model.limits import MIB
from python_exec_sandbox.setting_sources import load_settings
from python_exec_sandbox.settings import Settings

GIB = 1024 * MIB


def told(sandboxes: int, each: int, machine: int | None) -> tuple[int, str]:
    budget = memory_budget(sandboxes, each, machine)
    return budget.level, budget.text


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (512 * MIB, "may use up to 4 GiB of memory (8 of 512 MiB each); this machine has 16 GiB"),
        (2 * GIB, "may use up to 16 GiB of memory (8 of 2 GiB each); this machine has 16 GiB"),
    ],
)
def test_a_budget_within_the_machine_is_told_beside_it(each: int, text: str) -> None:
    assert told(8, each, 16 * GIB) == (logging.INFO, f"sandboxes {text}")


def test_a_budget_is_told_where_the_machine_does_not_tell() -> None:
    assert told(8, 512 * MIB, None) == (
        logging.INFO,
        "sandboxes may use up to 4 GiB of memory (8 of 512 MiB each)",
    )


@pytest.mark.parametrize(
    ("sandboxes", "each", "advice"),
    [(8, 2 * GIB, "--max-sandboxes to 7 or less, or lower --memory"), (1, 16 * GIB, "--memory")],
)
def test_a_budget_beyond_the_machine_is_a_warning_with_the_flags_to_change(
    sandboxes: int, each: int, advice: str
) -> None:
    level, text = told(sandboxes, each, 15 * GIB)
    assert level == logging.WARNING
    assert text.endswith(f"each), more than the 15 GiB this machine has; lower {advice}")


def test_this_machine_tells_its_memory() -> None:
    memory = machine_memory()
    assert memory is not None
    assert 128 * MIB < memory < 2**50


NO_ENGINE = {"max_sandboxes": 2, "pool_size": 0, "docker_host": "unix:///nonexistent/engine.sock"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "level"),
    [
        (load_settings({"memory": "512MiB", **NO_ENGINE}), "INFO"),
        (load_settings({"memory": "1000GiB", **NO_ENGINE}), "WARNING"),
    ],
    ids=["within", "beyond"],
)
async def test_the_budget_is_told_once_when_sandboxes_are_kept_warm(
    settings: Settings, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=backends.__name__):
        async with backends.open_docker(settings):
            pass
        async with backends.open_docker(settings, warm=False):
            pass
    assert [record.levelname for record in caplog.records if record.name == backends.__name__] == [level]

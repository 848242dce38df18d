"""What is said of the network, and what follows from it for packages."""

import pytest

from python_exec_sandbox.api.backends import executor_options
from python_exec_sandbox.api.network_words import reach_in_words
from python_exec_sandbox.drivers.bubblewrap.driver import BubblewrapDriver
from python_exec_sandbox.drivers.unsandboxed.driver import UnsandboxedDriver
from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings


def settings(**given: object) -> Settings:
    return Settings.model_validate({"ca_bundle": None, **given})


def test_each_kind_of_network_is_told() -> None:
    assert "no network" in reach_in_words(settings(network="none"))
    assert "public Internet" in reach_in_words(settings())
    assert "local network included" in reach_in_words(settings(network="full"))


@pytest.mark.parametrize(
    ("domains", "words"),
    [
        ("example.org", "reach example.org by"),
        ("example.org,*.example.net", "reach example.org, *.example.net by"),
        (" ".join(f"name{n}.example.org" for n in range(9)), "and 5 domains more by"),
        (f"{'x' * 60}.{'y' * 60}.example.org", "reach 1 domain by"),
    ],
)
def test_open_domains_are_named_as_far_as_there_is_room(domains: str, words: str) -> None:
    assert words in reach_in_words(settings(allow_domain=domains))


@pytest.mark.parametrize(
    ("network", "driver", "can"),
    [
        (Network.FULL, BubblewrapDriver.name, True),
        (Network.FILTERED, BubblewrapDriver.name, False),
        (Network.NONE, BubblewrapDriver.name, False),
        (Network.FILTERED, UnsandboxedDriver.name, True),
    ],
)
def test_a_sandbox_gets_packages_by_itself_only_where_it_has_a_network_before_its_script_runs(
    network: Network, driver: str, can: bool
) -> None:
    assert executor_options(settings(network=network), driver).can_install is can

"""The network of sandboxes: a bridge of our own on which no container reaches another."""

import logging
import random
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import anyio

from python_exec_sandbox.drivers.docker.facts import FoundNetwork
from python_exec_sandbox.drivers.docker.failure import EngineRefused, advice_for, quote
from python_exec_sandbox.drivers.docker.options import Network
from python_exec_sandbox.errors import CreateFailed

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

logger = logging.getLogger(__name__)

NETWORK_NAME = "python-exec-sandbox"
NETWORK_DRIVER = "bridge"

# The engine's own word for "inter-container connectivity"; its default bridge has it switched on.
NO_TRAFFIC_BETWEEN = ("com.docker.network.bridge.enable_icc", "false")

_GONE = re.compile(
    r"network \S+ (not found|is ambiguous)|no such network|unable to find network", re.IGNORECASE
)

# Look, make, look again; and a few times more while several servers do so at once.
_ROUNDS = 12
_PAUSE_SECONDS = (0.05, 0.25)

_WITHOUT = "Or use --network none."


class NetworkKeeper:
    """Knows what a container's ``NetworkMode`` must be; makes the network when it is missing.

    All servers of one engine share it, and nobody removes it: ``docker network prune`` may, and it is made
    again then.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._lock = anyio.Lock()
        self._known: tuple[Gateway, str] | None = None

    async def mode(self, gateway: "Gateway") -> str:
        """``"none"``, or the id of the network: names need not be unique. Asked once per connection.

        Raises:
            CreateFailed: it could not be made, or someone else's network has its name.
            EngineUnreachable: the engine went away meanwhile.
        """
        if self._network is not Network.FULL:
            return "none"
        async with self._lock:  # or the sandboxes made first would all make it
            if self._known is None or self._known[0] is not gateway:
                self._known = (gateway, await self._found_or_made(gateway))
            return self._known[1]

    def forget_if_gone(self, refusal: EngineRefused) -> bool:
        """Whether the engine says that the network has gone, or that there are several of its name by now."""
        if self._known is None or not _GONE.search(refusal.said):
            return False
        if NETWORK_NAME not in refusal.said and self._known[1] not in refusal.said:
            return False
        self._known = None
        return True

    async def _found_or_made(self, gateway: "Gateway") -> str:
        try:
            for _ in range(_ROUNDS):
                found = _ours(await gateway.networks(NETWORK_NAME))
                if len(found) == 1:
                    return found[0].id
                if found:
                    await _thin_out(gateway, found)
                else:
                    await _make(gateway)
        except EngineRefused as refusal:
            advice = advice_for(refusal.said)
            raise CreateFailed(
                f"The network {NETWORK_NAME}, which keeps sandboxes from each other, could not be made: {refusal} "
                f"{advice or 'Restart the engine.'} {'' if '--network none' in advice else _WITHOUT}".rstrip()
            ) from refusal
        raise CreateFailed(
            f"The engine has no network {NETWORK_NAME} for sandboxes, or several of that name, whatever is done about "
            f"it: see `docker network ls`, and remove them with `docker network rm`. {_WITHOUT}"
        )


async def _make(gateway: "Gateway") -> None:
    """One network more, unless another server was faster."""
    try:
        await gateway.create_network(NETWORK_NAME, NETWORK_DRIVER, dict([NO_TRAFFIC_BETWEEN]))
        logger.info("made the network %s for sandboxes", NETWORK_NAME)
    except EngineRefused as refusal:
        if not refusal.is_conflict:
            raise


async def _thin_out(gateway: "Gateway", found: list[FoundNetwork]) -> None:
    """Leave one of several networks: an old engine makes two of one name for two servers that ask at once, and
    then starts no container on either, even by id.

    All servers do the same, the newest first; the engine removes none that a container uses.
    """
    left = len(found)
    for network in reversed(found):
        if left == 1:
            break
        try:
            await gateway.remove_network(network.id)
            left -= 1
        except EngineRefused as refusal:
            left -= refusal.is_missing
    # Other servers are at it in the same moment: the jitter lets one of them win.
    await anyio.sleep(random.uniform(*_PAUSE_SECONDS))  # noqa: S311  # no secret


def _ours(networks: Iterable[FoundNetwork]) -> list[FoundNetwork]:
    """Those with exactly our name, the oldest first.

    Raises:
        CreateFailed: one doesn't keep its containers from each other.
    """
    named = [network for network in networks if network.name == NETWORK_NAME]
    name, value = NO_TRAFFIC_BETWEEN
    for network in named:
        if network.driver != NETWORK_DRIVER or network.options.get(name) != value:
            raise CreateFailed(
                f"The network {NETWORK_NAME} on the engine lets its containers talk to each other: {name} is "
                f"{quote(str(network.options.get(name)))} instead of {value}, or its driver is not {NETWORK_DRIVER}. "
                f"Remove it (`docker network rm {NETWORK_NAME}`), and it is made as it must be. {_WITHOUT}"
            )
    return sorted(named, key=lambda network: (network.created, network.id))

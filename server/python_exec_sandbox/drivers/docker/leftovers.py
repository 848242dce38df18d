"""What is ours on an engine and in nobody's use: found, told and removed.

Nothing is forced: what the engine refuses to remove is in use, and stays. A living server whose pool is
asleep has no container to be seen by; when its image or network goes it makes them again at its next call.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from python_exec_sandbox.drivers.docker.context import REPOSITORY
from python_exec_sandbox.drivers.docker.facts import FoundImage
from python_exec_sandbox.drivers.docker.failure import EngineRefused
from python_exec_sandbox.drivers.docker.labels import PROTOCOL
from python_exec_sandbox.drivers.docker.network import NETWORK_NAME
from python_exec_sandbox.drivers.leftovers import Kind, Leftover

if TYPE_CHECKING:
    from python_exec_sandbox.drivers.docker.gateway import Gateway

_SHORT_ID = 12


async def find_leftovers(gateway: "Gateway", dead: Sequence[str], current: str) -> list[Leftover]:
    """``dead`` are the containers that dead servers left, ``current`` names the image in use now.

    Raises:
        DriverError: the engine could not be asked.
    """
    found = [
        Leftover(Kind.CONTAINER, container[:_SHORT_ID], "its server is dead", (container,))
        for container in dead
    ]
    used = await gateway.images_in_use()
    if (kept := await gateway.image(current)) is not None:
        used.add(kept.id)
    found += [
        _old_image(image)
        for image in await gateway.images(PROTOCOL)
        if _is_ours(image) and current not in image.tags and image.id not in used
    ]
    found += [
        Leftover(Kind.NETWORK, network.name, "no container is on it", (network.id,))
        for network in await gateway.networks(NETWORK_NAME)
        if network.name == NETWORK_NAME and not await gateway.network_is_used(network.id)
    ]
    return found


async def remove_leftover(gateway: "Gateway", leftover: Leftover) -> None:
    """Remove it; one that has gone meanwhile is fine.

    Raises:
        DriverError: the engine refused.
    """
    remove = {
        Kind.CONTAINER: gateway.remove,
        Kind.IMAGE: gateway.remove_image,
        Kind.NETWORK: gateway.remove_network,
    }[leftover.kind]
    for handle in leftover.handles:
        try:
            await remove(handle)
        except EngineRefused as refusal:
            if not refusal.is_missing:
                raise


def _is_ours(image: FoundImage) -> bool:
    """Whether this package made it: an image that a person gave a name of their own is theirs."""
    return all(tag.partition(":")[0] == REPOSITORY for tag in image.tags)


def _old_image(image: FoundImage) -> Leftover:
    name = ", ".join(image.tags) or image.id.removeprefix("sha256:")[:_SHORT_ID]
    why = "of another version of this package" if image.tags else "without a name"
    # By their names, as an engine refuses to remove one that has several by its id.
    return Leftover(Kind.IMAGE, name, why, image.tags or (image.id,), image.size)

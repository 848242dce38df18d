"""Names that change their addresses: what was checked is what is connected to. Listeners and resolvers of the test's own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network

import anyio
import anyio.abc
import pytest

from python_exec_sandbox.egress.dial import Dialer, Refused, Resolve
from python_exec_sandbox.egress.policy import Address, Policy

pytestmark = pytest.mark.anyio

OPEN, CLOSED = "127.0.0.1", "127.0.0.2"


@asynccontextmanager
async def two_listeners() -> AsyncIterator[tuple[int, list[str]]]:
    """One port on both addresses, and the addresses at which somebody called."""
    called: list[str] = []

    def answer(name: str) -> Callable[[anyio.abc.ByteStream], object]:
        async def serve(stream: anyio.abc.ByteStream) -> None:
            called.append(name)
            async with stream:
                await stream.send(name.encode())

        return serve

    async with await anyio.create_tcp_listener(local_host=OPEN, local_port=0) as first:
        port = first.extra(anyio.abc.SocketAttribute.local_port)
        async with (
            await anyio.create_tcp_listener(local_host=CLOSED, local_port=port) as second,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(first.serve, answer(OPEN))
            tasks.start_soon(second.serve, answer(CLOSED))
            yield port, called
            tasks.cancel_scope.cancel()


class Names:
    """Answers one list after the other, and the last one from then on."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, name: str, port: int) -> list[str]:
        self.asked.append(name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def dialer(port: int, resolve: Resolve, owns: Callable[[Address], bool] = lambda _: False) -> Dialer:
    policy = Policy(ranges=(ip_network(f"{OPEN}/32"),), ports=frozenset({port}))
    return Dialer(policy, environment={}, resolve=resolve, owns=owns)


async def read(stream: anyio.abc.ByteStream) -> str:
    async with stream:
        with anyio.fail_after(10):
            return (await stream.receive()).decode()


async def test_a_name_is_resolved_once_and_its_checked_address_is_called() -> None:
    names = Names([OPEN], [CLOSED])
    async with two_listeners() as (port, called):
        outside = dialer(port, names)
        assert await read(await outside.dial("rebind.example", port)) == OPEN
        assert names.asked == ["rebind.example"]
        with pytest.raises(Refused) as caught:
            await outside.dial("rebind.example", port)
        assert caught.value.refusal.rule == "loopback-address"
        assert called == [OPEN]


async def test_of_several_addresses_only_the_open_ones_are_called() -> None:
    async with two_listeners() as (port, called):
        outside = dialer(port, Names([CLOSED, "169.254.169.254", "::ffff:10.0.0.1", OPEN]))
        assert await read(await outside.dial("mixed.example", port)) == OPEN
        assert called == [OPEN]


async def test_nothing_is_resolved_that_is_refused_by_its_name_or_port() -> None:
    names = Names([OPEN])
    outside = dialer(1, names)
    for host, port in (
        ("localhost", 80),
        ("a.localhost.", 443),
        ("example.org", 22),
        ("user@example.org", 80),
    ):
        with pytest.raises(Refused):
            await outside.dial(host, port)
    assert names.asked == []


async def test_a_public_address_of_this_machine_is_refused_before_it_is_called() -> None:
    outside = dialer(1, Names(["8.8.8.8"]), owns=lambda address: str(address) == "8.8.8.8")
    with pytest.raises(Refused) as caught:
        await outside.dial("own.example", 443)
    assert caught.value.refusal.rule == "own-address"

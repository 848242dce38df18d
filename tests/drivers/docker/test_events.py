"""Why a container ended, from the order of the engine's events."""

import json
import socket

import anyio
import pytest

from python_exec_sandbox.drivers.docker.channel import AttachedChannel, RawStream
from python_exec_sandbox.drivers.docker.events import EventFeed, Fate
from python_exec_sandbox.drivers.docker.facts import EventStream
from python_exec_sandbox.drivers.docker.keeper import ContainerKeeper
from python_exec_sandbox.errors import EngineUnreachable
from python_exec_sandbox.model.result import Loss

pytestmark = pytest.mark.anyio

DIE_137 = ("die", {"exitCode": "137"})
OOM: tuple[str, dict[str, str]] = ("oom", {})
KILL = ("kill", {"signal": "9"})
DESTROY: tuple[str, dict[str, str]] = ("destroy", {})


@pytest.mark.parametrize(
    ("events", "loss", "words"),
    [
        ([OOM, DIE_137], Loss.MEMORY, "memory killer"),
        ([OOM, OOM, DIE_137, DESTROY], Loss.MEMORY, "memory killer"),
        ([DIE_137, OOM, DESTROY], Loss.MEMORY, "memory killer"),
        ([KILL, DIE_137], Loss.KILLED, "through the engine with signal 9"),
        ([OOM, KILL, DIE_137], Loss.KILLED, "through the engine"),
        ([KILL, DIE_137, OOM], Loss.KILLED, "through the engine"),
        ([DIE_137, DESTROY], Loss.KILLED, "doesn't say by whom"),
        ([("die", {"exitCode": "1"})], Loss.FAULT, "exit code 1; it said: Traceback"),
        ([OOM, ("die", {"exitCode": "1"})], Loss.FAULT, "exit code 1"),
        ([DESTROY], Loss.KILLED, "doesn't say by whom"),
        ([], Loss.FAULT, "doesn't say why; it said: Traceback"),
        ([OOM], Loss.FAULT, "doesn't say why"),
    ],
)
async def test_the_order_of_the_events_tells_why(
    events: list[tuple[str, dict[str, str]]], loss: Loss, words: str
) -> None:
    fate = Fate()
    for action, attributes in events:
        fate.note(action, attributes)
    told, sentence = fate.explain("Traceback")
    assert told is loss
    assert words in sentence
    assert "the sandbox" not in sentence.lower()  # the verdict's sentence around it begins with that


@pytest.mark.parametrize("code", ["9" * 5000, None, 1, [], "-1", ""])
async def test_an_exit_code_that_is_none_ends_nothing(code: object) -> None:
    fate = Fate()
    fate.note("die", {"exitCode": code})
    assert fate.died.is_set()
    assert fate.exit_code == (1 if code == 1 else None)


async def test_a_signal_is_quoted_in_a_few_characters() -> None:
    fate = Fate()
    fate.note("kill", {"signal": "\x1b" + "9" * 10_000})
    fate.note(*DIE_137)
    assert len(fate.explain("")[1]) < 60
    assert fate.explain("")[1].isprintable()


async def test_a_death_by_signal_nine_is_not_clear_before_the_removal() -> None:
    fate = Fate()
    fate.note(*DIE_137)
    assert not fate.is_clear
    fate.note(*DESTROY)
    assert fate.is_clear


class Scripted:
    """Subscriptions in order: an error, or the bytes the engine sends before it hangs up."""

    def __init__(self, *streams: bytes | EngineUnreachable) -> None:
        self.left = [stream if isinstance(stream, EngineUnreachable) else _sent(stream) for stream in streams]
        self.all_used = anyio.Event()

    async def __call__(self) -> EventStream:
        if not self.left:
            self.all_used.set()
            await anyio.sleep_forever()
        stream = self.left.pop(0)
        if isinstance(stream, EngineUnreachable):
            raise stream
        return stream


def _sent(data: bytes) -> EventStream:
    """A part comes with the headers, the rest and the end over the socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(data[5:])
    return EventStream(RawStream(ours, data[:5]), chunked=False)


def line(container: str, action: str, **attributes: str) -> bytes:
    event = {"Type": "container", "Action": action, "Actor": {"ID": container, "Attributes": attributes}}
    return json.dumps(event).encode() + b"\n"


async def test_the_feed_subscribes_again_when_the_engine_comes_back() -> None:
    feed = EventFeed()
    fate = feed.watch("one")
    subscribe = Scripted(
        line("one", "oom"),
        EngineUnreachable("restarting"),
        b"garbage\n[1]\n{}\n" + line("other", "die", exitCode="0") + line("one", "die", exitCode="137"),
    )
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.follow, subscribe)
            await subscribe.all_used.wait()
            tasks.cancel_scope.cancel()
    assert fate.explain("")[0] is Loss.MEMORY
    assert feed.interrupted.is_set()
    assert not feed.listening.is_set()


async def test_events_of_containers_that_nobody_watches_are_not_kept() -> None:
    feed = EventFeed()
    feed.watch("one")
    feed.forget("one")
    subscribe = Scripted(
        b"".join(line(f"c{n}", "die", exitCode="0") for n in range(100)) + line("one", "die")
    )
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.follow, subscribe)
            await subscribe.all_used.wait()
            tasks.cancel_scope.cancel()
    assert feed._fates == {}


async def test_a_pause_is_known_until_it_is_over() -> None:
    fate = Fate()
    fate.note("pause", {})
    assert fate.paused
    fate.note("unpause", {})
    assert not fate.paused


async def test_each_subscription_has_a_number_of_its_own_and_a_gap_has_none() -> None:
    feed = EventFeed()
    seen: list[int | None] = [feed.subscription]
    listen = feed._sort

    def look(event: dict[str, object]) -> None:
        seen.append(feed.subscription)
        listen(event)

    feed._sort = look  # type: ignore[method-assign]  # the only moment at which a scripted engine is heard
    subscribe = Scripted(line("one", "start"), line("one", "die", exitCode="0"))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.follow, subscribe)
            await subscribe.all_used.wait()
            tasks.cancel_scope.cancel()
    assert [*seen, feed.subscription] == [None, 1, 2, None]


async def test_a_container_is_watched_only_by_the_subscription_of_its_birth() -> None:
    feed = EventFeed()
    feed.listening.set()
    fate = feed.watch("one")

    async def nothing() -> None:
        """Remove nothing."""

    ours, theirs = socket.socketpair()
    with ours, theirs:
        keeper = ContainerKeeper(AttachedChannel(RawStream(ours, b"")), fate, feed, _Engine(), nothing)
        assert (keeper.watched, keeper.halted) == (True, False)
        fate.note("pause", {})
        assert keeper.halted
        feed.listening = anyio.Event()
        assert not keeper.watched
        feed._subscriptions += 1
        feed.listening.set()
        assert not keeper.watched


class _Engine:
    address = "unix:///nowhere"

    async def answers(self) -> bool:
        return True

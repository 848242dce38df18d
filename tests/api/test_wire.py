"""The protocol's lines on two descriptors."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest

from python_exec_sandbox.api.wire import LineReader, LineWriter, whole_characters

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 5


class Pipe:
    """Both ends; each is closed once, as its number may be another file's afterwards."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        self._open = {self.out, self.into}

    def close(self, *ends: int) -> None:
        for end in ends or tuple(self._open):
            self._open.remove(end)
            os.close(end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


async def all_lines(fd: int) -> list[str]:
    with anyio.fail_after(PATIENCE_SECONDS):
        return [line async for line in LineReader(fd)]


@pytest.mark.parametrize(
    "pieces",
    [
        [b'{"a": 1}\n{"b": 2}\n'],
        [b'{"a"', b': 1}\n{"b', b'": 2}', b"\n"],
        [bytes([byte]) for byte in b'{"a": 1}\n{"b": 2}\n'],
        [b'{"a": 1}\n{"b": 2}'],
    ],
)
async def test_lines_are_the_same_however_they_arrive(pipe: Pipe, pieces: Sequence[bytes]) -> None:
    lines: list[str] = []

    async def read() -> None:
        lines.extend(await all_lines(pipe.out))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for piece in pieces:
            os.write(pipe.into, piece)
            await anyio.lowlevel.checkpoint()
        pipe.close(pipe.into)
    assert lines == ['{"a": 1}', '{"b": 2}']


async def test_what_is_not_utf_8_is_replaced_and_empty_lines_stay(pipe: Pipe) -> None:
    os.write(pipe.into, b"\xff\n\n\xc3\xa9\r\n")
    pipe.close(pipe.into)
    assert await all_lines(pipe.out) == ["\ufffd", "", "é\r"]


async def test_a_line_of_many_reads_is_whole(pipe: Pipe) -> None:
    line = b"x" * 3_000_000

    def write() -> None:
        with os.fdopen(os.dup(pipe.into), "wb") as file:
            file.write(line + b"\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, write)
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await anext(LineReader(pipe.out)) == line.decode()


async def test_a_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_bytes(b"one\ntwo\n")
    with path.open("rb") as file:
        assert await all_lines(file.fileno()) == ["one", "two"]


async def test_waiting_for_a_line_can_be_cancelled(pipe: Pipe) -> None:
    reader = LineReader(pipe.out)
    with anyio.move_on_after(0.01) as scope:
        await anext(reader)
    assert scope.cancelled_caught
    os.write(pipe.into, b"late\n")
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await anext(reader) == "late"


async def test_a_reader_that_is_away_holds_up_nothing_but_the_answer(pipe: Pipe) -> None:
    text = "y" * 1_000_000
    writer = LineWriter(pipe.into)
    received = bytearray()
    async with anyio.create_task_group() as tasks:
        await writer.write(text)
        tasks.start_soon(writer.flush)
        for _ in range(100):  # a blocked loop would never come here
            await anyio.lowlevel.checkpoint()
        assert not received
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(received) < len(text):
                await anyio.wait_readable(pipe.out)
                received += os.read(pipe.out, 65536)
    assert received.decode() == text


async def test_an_answer_that_nobody_reads_is_an_error(pipe: Pipe) -> None:
    pipe.close(pipe.out)
    writer = LineWriter(pipe.into)
    await writer.write("answer\n")
    with pytest.raises(BrokenPipeError):
        await writer.flush()


async def test_a_lone_surrogate_cannot_break_the_wire(pipe: Pipe) -> None:
    writer = LineWriter(pipe.into)
    await writer.write("\ud800é\n")
    await writer.flush()
    assert os.read(pipe.out, 100) == "?é\n".encode()


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\udE00 \uD83D!"', r'"\ufffd \ufffd!"'),
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d\ud83d\ude00\ude00"', r'"\ufffd\ud83d\ude00\ufffd"'),
        (r'"\\ud83d \\\ud83d \u00e9 \n"', r'"\\ud83d \\\ufffd \u00e9 \n"'),
        (r'"\u', r'"\u'),
    ],
)
async def test_half_a_surrogate_pair_becomes_a_character_that_readers_take(sent: str, read: str) -> None:
    assert whole_characters(sent) == read


async def test_the_end_leaves_time_for_what_is_answered_without_waiting(pipe: Pipe) -> None:
    os.write(pipe.into, b"last")
    pipe.close(pipe.into)
    answered = anyio.Event()
    reader = LineReader(pipe.out)

    async def answer() -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        answered.set()

    async with anyio.create_task_group() as tasks:
        async for line in reader:
            assert line == "last"
            tasks.start_soon(answer)
        assert answered.is_set()

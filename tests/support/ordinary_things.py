"""``python ordinary_things.py``: what Python programs do all day; prints the name of each that worked."""

import asyncio
import concurrent.futures
import ctypes
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import pty
import queue
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

SECONDS = 20


def threads() -> None:
    results: queue.Queue[int] = queue.Queue()
    workers = [threading.Thread(target=results.put, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
    assert sorted(results.queue) == list(range(8))


def subprocesses() -> None:
    for new_session in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", "print(6 * 7)"],
            capture_output=True,
            timeout=SECONDS,
            check=True,
            start_new_session=new_session,
        )
        assert done.stdout == b"42\n"
    assert os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0
    assert subprocess.run("echo $((6 * 7))", shell=True, capture_output=True, check=True).stdout == b"42\n"


def fork() -> None:
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def double(number: int) -> int:
    return number * 2


def multiprocessing_by(method: str) -> None:
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(double, range(4), timeout=SECONDS)) == [0, 2, 4, 6]


def multiprocessing_fork() -> None:
    multiprocessing_by("fork")


def multiprocessing_spawn() -> None:
    multiprocessing_by("spawn")


def multiprocessing_forkserver() -> None:
    multiprocessing_by("forkserver")


def asyncio_streams_and_processes() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            writer.close()
        process = await asyncio.create_subprocess_exec("/bin/echo", "hi", stdout=subprocess.PIPE)
        assert (await process.communicate())[0] == b"hi\n"
        assert await asyncio.to_thread(double, 4) == 8

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def sockets() -> None:
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0))):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(family, kind) as made:
                if family is socket.AF_INET:
                    made.bind(address)
    left, right = socket.socketpair()
    with left, right:
        socket.send_fds(left, [b"x"], [0])
        received = socket.recv_fds(right, 1, 1)
        os.close(received[1][0])
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"{folder}/socket")
    assert socket.getaddrinfo("localhost", 80)
    assert socket.if_nameindex()


def memory_files() -> None:
    descriptor = os.memfd_create("name")
    os.write(descriptor, b"content")
    with mmap.mmap(descriptor, 7) as mapped:
        assert mapped[:] == b"content"
    os.close(descriptor)
    block = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    assert block.buf is not None
    block.buf[:2] = b"hi"
    assert Path("/dev/shm", block.name).read_bytes()[:2] == b"hi"
    block.close()
    block.unlink()


def terminals() -> None:
    leader, follower = pty.openpty()
    assert os.isatty(follower)
    assert os.get_terminal_size(follower) == (0, 0)
    os.close(leader)
    os.close(follower)


def events_and_signals() -> None:
    with selectors.EpollSelector():
        pass
    caught = []
    signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    assert caught == [signal.SIGUSR1]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result(SECONDS) is not None
    os.close(os.pidfd_open(os.getpid()))
    assert ctypes.CDLL(None).getpid() == os.getpid()


THINGS: tuple[Callable[[], None], ...] = (
    *(threads, subprocesses, fork, multiprocessing_fork, multiprocessing_spawn, multiprocessing_forkserver),
    *(asyncio_streams_and_processes, sockets, memory_files, terminals, events_and_signals),
)

if __name__ == "__main__":
    for thing in THINGS:
        thing()
        print(thing.__name__, flush=True)

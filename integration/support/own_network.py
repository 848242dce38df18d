"""Starts a command in a network of its own, in which somebody listens at each address that a script must not reach.

    python own_network.py FILE COMMAND...

The network has a loopback alone, which has those addresses, too; so nothing leaves this machine. FILE gets a line
for each connection that a listener takes. Needs root.
"""

import ctypes
import fcntl
import os
import selectors
import socket
import struct
import sys
from pathlib import Path

ADDRESSES = ("169.254.169.254", "100.100.100.200", "192.168.77.1", "203.0.113.7")
PORTS = (80, 443)
ABSTRACT = "python-exec-sandbox-own-network"

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR = 0x8913, 0x8914, 0x8916
_IFF_UP = 1


def _have_addresses() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        for number, address in enumerate(ADDRESSES):
            alias = struct.pack("16sH2x4s8x", b"lo:%d" % number, socket.AF_INET, socket.inet_aton(address))
            fcntl.ioctl(control, _SIOCSIFADDR, alias)


def _listen() -> dict[socket.socket, str]:
    doors = {}
    for address in ("127.0.0.1", *ADDRESSES):
        for port in PORTS:
            doors[socket.create_server((address, port))] = f"{address}:{port}"
    hidden = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    hidden.bind("\0" + ABSTRACT)
    hidden.listen()
    return doors | {hidden: "abstract"}


def _answer(doors: dict[socket.socket, str], file: str) -> None:
    with selectors.DefaultSelector() as selector, Path(file).open("a", buffering=1) as told:
        for door in doors:
            selector.register(door, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                peer, _ = key.fileobj.accept()
                told.write(doors[key.fileobj] + "\n")
                peer.settimeout(2)
                peer.recv(65536)  # a request that nobody read would turn the answer into a reset
                peer.sendall(b"HTTP/1.0 200 OK\r\n\r\nOPEN\n")
                peer.close()


def main(file: str, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network of our own")
    _have_addresses()
    doors = _listen()
    server = os.getpid()
    if os.fork() == 0:
        for fd in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: it ends with the server
        if os.getppid() == server:
            _answer(doors, file)
        os._exit(0)
    for door in doors:
        door.close()
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

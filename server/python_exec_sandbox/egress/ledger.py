"""What a run reached and what was refused, counted in bounded memory."""

from dataclasses import dataclass

from python_exec_sandbox.egress.policy import Refusal
from python_exec_sandbox.model.traffic import HostTraffic, RefusedHost, Traffic

MOST_HOSTS = 64
"""Of each kind; the script chooses the names."""

LONGEST_HOST = 253


@dataclass(slots=True)
class Count:
    connections: int = 0
    sent: int = 0
    received: int = 0


@dataclass(slots=True)
class _Refused:
    refusal: Refusal
    count: int = 0


class Ledger:
    def __init__(self) -> None:
        self._hosts: dict[tuple[str, int], Count] = {}
        self._refused: dict[tuple[str, int], _Refused] = {}
        self._rest = Count()
        self._other_refusals = 0
        self.total_bytes = 0

    def reached(self, host: str, port: int) -> Count:
        """A connection to it was made; where its bytes are counted."""
        key = _key(host, port)
        count = self._hosts.get(key)
        if count is None and len(self._hosts) < MOST_HOSTS:
            count = self._hosts[key] = Count()
        elif count is None:
            count = self._rest
        count.connections += 1
        return count

    def refused(self, host: str, port: int, refusal: Refusal) -> None:
        key = _key(host, port)
        entry = self._refused.get(key)
        if entry is None and len(self._refused) < MOST_HOSTS:
            entry = self._refused[key] = _Refused(refusal)
        if entry is None:
            self._other_refusals += 1
        else:
            entry.count += 1

    def traffic(self) -> Traffic:
        """All of it, as of now."""
        return Traffic(
            hosts=tuple(
                HostTraffic(host, port, count.connections, count.sent, count.received)
                for (host, port), count in self._hosts.items()
            ),
            refused=tuple(
                RefusedHost(host, port, entry.refusal.rule, entry.refusal.text, entry.count)
                for (host, port), entry in self._refused.items()
            ),
            other_connections=self._rest.connections,
            other_sent_bytes=self._rest.sent,
            other_received_bytes=self._rest.received,
            other_refusals=self._other_refusals,
        )


def _key(host: str, port: int) -> tuple[str, int]:
    """By SOCKS a script can name a host with any bytes; results show it as one word of a line."""
    return "".join(c if c.isprintable() and c != " " else "?" for c in host[:LONGEST_HOST]), port

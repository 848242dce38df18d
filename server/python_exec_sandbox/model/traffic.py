"""What a run had to do with the network."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostTraffic:
    """One host and port that a script reached. Bytes are counted at our end of the connections to it: what
    the script sent, what it received, TLS and all."""

    host: str
    port: int
    connections: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class RefusedHost:
    """What a script asked for and did not get. ``rule`` is a short word such as ``private-address``."""

    host: str
    port: int
    rule: str
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Hosts in the order in which they were first asked for. Of those beyond a bound only sums are known."""

    hosts: tuple[HostTraffic, ...] = ()
    refused: tuple[RefusedHost, ...] = ()
    other_connections: int = 0
    other_sent_bytes: int = 0
    other_received_bytes: int = 0
    other_refusals: int = 0

"""What a script may reach in the filtered network. Pure: names, addresses and ports in, a refusal or nothing out.

A connection passes twice: its host and port as the script wrote them, before anything is resolved, and then each
address that the name has. Only addresses that passed are connected to, so a name that changes its address between
the two gains nothing.
"""

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import idna

Address = IPv4Address | IPv6Address
Range = IPv4Network | IPv6Network

USUAL_PORTS = frozenset({80, 443})

_LONGEST_NAME = 253
_LAST_PORT = 65_535
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)

# What the classic C function takes for an IPv4 address: one to four numbers, decimal, octal or hexadecimal.
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}", re.ASCII)

# In front of an IPv4 address: the kernel's own form of it (RFC 4291, 2.5.5.2), and a translator's well-known prefix
# (RFC 6052), by which networks without IPv4 reach all of it.
_DISGUISES = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))


def _ranges(rule: str, *texts: str) -> tuple[tuple[str, Range], ...]:
    return tuple((rule, ip_network(text)) for text in texts)


# The IANA registries of special addresses, by the words that a refusal uses.
_CLOSED: tuple[tuple[str, Range], ...] = (
    *_ranges("unspecified-address", "0.0.0.0/8", "::/128"),
    *_ranges("loopback-address", "127.0.0.0/8", "::1/128"),
    *_ranges("link-local-address", "169.254.0.0/16", "fe80::/10"),
    *_ranges("private-address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
    *_ranges("private-address", "fc00::/7", "fec0::/10"),
    *_ranges("multicast-address", "224.0.0.0/4", "ff00::/8"),
    *_ranges("reserved-address", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
    *_ranges("reserved-address", "192.88.99.0/24", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24"),
    *_ranges("reserved-address", "203.0.113.0/24", "240.0.0.0/4"),
    *_ranges(
        "metadata-address", "168.63.129.16/32"
    ),  # a public one, at which Azure's hosts answer their machines
    *_ranges("reserved-address", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48"),
)

# Whatever the registries will say of the rest one day: today only this is given out.
_GIVEN_OUT = IPv6Network("2000::/3")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is not made. ``rule`` is a short word, ``text`` one sentence with the way out, if there is one."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What is open. Without ``domains`` every public name is; ``ranges`` are open although they are not public,
    ``ports`` beside the usual ones. A domain is a name, or ``*.`` and a name for all below it."""

    domains: tuple[str, ...] = ()
    ranges: tuple[Range, ...] = ()
    ports: frozenset[int] = frozenset()

    def check_port(self, port: int) -> Refusal | None:
        """Why nothing is reached on ``port``; ``None`` when it is open."""
        if port in USUAL_PORTS or port in self.ports:
            return None
        open_ones = ", ".join(str(one) for one in sorted(USUAL_PORTS | self.ports))
        return Refusal(
            "port", f"port {port} is closed to scripts; open are {open_ones} (--allow-port opens more)"
        )

    def check_name(self, name: str) -> Refusal | None:
        """Why ``name``, as :func:`read_host` returns it, is not resolved."""
        if name == "localhost" or name.endswith(".localhost"):
            return Refusal("loopback-name", f"{name} is the server's own machine")
        if not self.domains or any(_covers(domain, name) for domain in self.domains):
            return None
        return Refusal("domain", f"{name} is not among the domains open to scripts (--allow-domain)")

    def check_literal(self, address: Address) -> Refusal | None:
        """Why an address that the script itself wrote is not connected to."""
        if self.domains and not self._is_opened(address):
            return Refusal("domain", f"{address} is no name, and only some domains are open to scripts")
        return self.check_address(address)

    def check_address(self, address: Address) -> Refusal | None:
        """Why ``address`` is not connected to, wherever it came from."""
        if self._is_opened(address):
            return None
        rule = _closed(_meant(address))
        if rule is None:
            return None
        words = rule.removesuffix("-address")
        return Refusal(rule, f"{address} is {_article(words)} {words} address (--allow-address opens ranges)")

    def check_own(self, address: Address) -> Refusal | None:
        """Why ``address``, which is one of this machine's own, is not connected to."""
        if self._is_opened(address):
            return None
        return Refusal("own-address", f"{address} is the server's own machine (--allow-address opens ranges)")

    def _is_opened(self, address: Address) -> bool:
        # By what it means: a range of IPv6 must not open this machine's IPv4 in disguise.
        meant = _meant(address)
        return any(meant in one for one in self.ranges)


def read_host(text: str) -> str | Address | None:
    """The host that ``text`` names, in one form: a name in lower case, ASCII and without its last dot, or an
    address, in whatever form it was written; ``None`` when it is neither."""
    if text.startswith("[") and text.endswith("]"):
        return _literal_v6(text[1:-1])
    if ":" in text:
        return _literal_v6(text)
    name = _in_ascii(text)
    if name is None:
        return None
    name = name.removesuffix(".")
    if _NUMERIC.fullmatch(name):
        return _as_c_reads(name)
    labels = name.split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    # No top-level domain is a number; what looks like one is an address to somebody.
    return None if _is_number(labels[-1]) else name


def _is_number(label: str) -> bool:
    return label.isdigit() or re.fullmatch(r"0x[0-9a-f]*", label) is not None


def _in_ascii(text: str) -> str | None:
    if text.isascii():
        return text.lower()
    try:
        return idna.encode(text, uts46=True, transitional=False).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        return _mapped_to_ascii(text)


def _mapped_to_ascii(text: str) -> str | None:
    """Characters such as full-width digits are ASCII to many a resolver, even where the whole is no name."""
    try:
        mapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
    except (idna.IDNAError, UnicodeError):
        return None
    return mapped.lower() if mapped.isascii() else None


def _literal_v6(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return None
    return address


def _as_c_reads(text: str) -> Address | None:
    try:
        return IPv4Address(socket.inet_aton(text))
    except OSError:
        return None


def _meant(address: Address) -> Address:
    """The IPv4 address that ``address`` carries inside, if it is such a form; else itself."""
    if any(address in one for one in _DISGUISES):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _closed(address: Address) -> str | None:
    for rule, one in _CLOSED:
        if address in one:
            return rule
    if isinstance(address, IPv6Address) and address not in _GIVEN_OUT:
        return "reserved-address"
    return None


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _covers(domain: str, name: str) -> bool:
    return name.endswith(domain[1:]) if domain.startswith("*.") else name == domain


def read_policy(domains: str | None, addresses: str | None, ports: str | None) -> Policy:
    """The policy of three lists, each with blanks or commas between its items; ``None`` is an empty one.

    Raises:
        ValueError: an item is not what its list holds; the text begins with the item.
    """
    return Policy(
        domains=tuple(read_domain(item) for item in _items(domains)),
        ranges=tuple(_read_range(item) for item in _items(addresses)),
        ports=frozenset(_read_port(item) for item in _items(ports)),
    )


def _items(text: str | None) -> list[str]:
    return (text or "").replace(",", " ").split()


def _read_range(text: str) -> Range:
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text} is no address or range such as 192.168.1.0/24") from None
    if isinstance(found, IPv6Network) and any(found.subnet_of(one) for one in _DISGUISES):
        raise ValueError(f"{text} holds IPv4 addresses in another form; write them as IPv4")
    return found


def _read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _LAST_PORT):
        raise ValueError(f"{text} is no port (1 to {_LAST_PORT})")
    return int(text)


def read_domain(text: str) -> str:
    """A domain of the allow-list in the form that :class:`Policy` takes.

    Raises:
        ValueError: it is no name, an address, or too wide: a part of the name space that is given to anybody.
    """
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - takes a moment, and few name domains

    wide = text.startswith("*.")
    host = read_host(text[2:] if wide else text)
    if not isinstance(host, str):
        raise ValueError(f"{text} is no domain such as example.org or *.example.org")  # noqa: TRY004 - its text is wrong
    if "." not in host or PublicSuffixList().privatesuffix(host) is None:
        raise ValueError(f"{text} is too wide: names under it are given to anybody")
    return f"*.{host}" if wide else host

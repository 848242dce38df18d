"""Forms in which a script may try to reach what is closed, and laws that hold for every form."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_exec_sandbox.egress.policy import (
    Address,
    Policy,
    Range,
    Refusal,
    read_domain,
    read_host,
    read_policy,
)

OPEN_INTERNET = Policy()


def rule_for(policy: Policy, host: str, port: int = 443) -> str | None:
    """The rule that stops ``host`` before anything is resolved; ``None`` if none does."""
    refusal = policy.check_port(port)
    if refusal is None:
        target = read_host(host)
        if target is None:
            return "host"
        check = policy.check_name(target) if isinstance(target, str) else policy.check_literal(target)
        refusal = check
    return None if refusal is None else refusal.rule


LOOPBACK = [
    "127.0.0.1",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "00000000000000177.0.0.1",
    "0x7f.0.0.01",
    "127.0.0.1.",
    "[127.0.0.1]",
    "127\u30020\u30020\u30021",  # ideographic full stops
    "\uff11\uff12\uff17.0.0.1",  # full-width digits
    "\uff11\uff12\uff17\uff0e\uff11",  # and a full-width full stop
    "0\u21697f.1",  # a Roman ten, which is an x to a resolver
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "0000:0000:0000:0000:0000:0000:0000:0001",
    "::ffff:127.0.0.1",
    "[::FFFF:7F00:1]",
    "64:ff9b::127.0.0.1",
]

LOOPBACK_NAMES = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "LocalHost.LocalHost.",
    "lo\u00adcalhost",  # a soft hyphen is dropped
    "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",  # letters in circles
    "\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54",  # full-width letters
    "loca\u2113host",  # a script l
    "a_b\u3002localhost",  # no name by the rules of IDNA, and one to a resolver
]

LINK_LOCAL = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "\u246f\u2468.254.169.254",  # 16 and 9 in circles
    "[::ffff:169.254.169.254]",
    "::ffff:a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "fe80::1",
    "febf::1",
]

PRIVATE = [
    "10.0.0.1",
    "0xa.1",
    "012.0.0.1",
    "167772161",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "192.168.257",
    "100.64.0.1",
    "100.100.100.200",
    "::ffff:10.0.0.1",
    "64:ff9b::192.168.1.1",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
]

UNSPECIFIED = ["0.0.0.0", "0", "0x0", "00", "0.1", "::", "[::]", "::ffff:0.0.0.0"]

MULTICAST = ["224.0.0.1", "239.255.255.250", "ff02::1", "::ffff:224.0.0.1"]

RESERVED = [
    "255.255.255.255",
    "4294967295",
    "240.0.0.1",
    "192.0.0.192",
    "198.18.0.1",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.175.48.1",
    "198.51.100.1",
    "203.0.113.1",
    "2001:db8::1",
    "2620:4f:8000::1",
    "3fff::1",
    "::127.0.0.1",  # IPv4-compatible
    "::ffff:0:7f00:1",  # IPv4-translated
    "64:ff9b:1::7f00:1",  # a translator's local prefix
    "2002:7f00:1::",  # 6to4
    "2002:a9fe:a9fe::1",
    "2001:0:7f00:1::",  # Teredo, by its server
    "2001:0:4136:e378:8000:63bf:80ff:fffe",  # and by its client, 127.0.0.1
]

NO_HOST = [
    "",
    ".",
    "..",
    " ",
    "127.0.0.1 ",
    "\t127.0.0.1",
    "127.0.0.1\x00.example.org",
    "example.org\r\nHost: localhost",
    "127.0.0.1..",
    "localhost..",
    "127.0.0.1:80",
    "example.org:80",
    "user@127.0.0.1",
    "example.org@127.0.0.1",
    "127.0.0.1#example.org",
    "127.0.0.1/32",
    "127.0.0.1%20",
    "%6cocalhost",
    "::1%lo",
    "[fe80::1%25eth0]",
    "[::1",
    "1.2.3.4.5",
    "256.1",
    "4294967296",
    "-1",
    "127.0.0.08",
    "0x7g.1",
    "example.0x7f",
    "example.127",
    "*.example.org",
    "-a.example.org",
    "a" * 64 + ".example.org",
    "a." * 126 + "org",
    "\ud800.example.org",
    "example\u2044org",  # a fraction slash
]

BYPASSES = [
    *(("loopback-address", host) for host in LOOPBACK),
    *(("loopback-name", host) for host in LOOPBACK_NAMES),
    *(("link-local-address", host) for host in LINK_LOCAL),
    *(("private-address", host) for host in PRIVATE),
    *(("unspecified-address", host) for host in UNSPECIFIED),
    *(("multicast-address", host) for host in MULTICAST),
    *(("reserved-address", host) for host in RESERVED),
    *(("host", host) for host in NO_HOST),
]


@pytest.mark.parametrize(("rule", "host"), BYPASSES)
def test_no_form_of_a_closed_place_passes(rule: str, host: str) -> None:
    assert rule_for(OPEN_INTERNET, host) == rule


@pytest.mark.parametrize("host", LOOPBACK + LINK_LOCAL + PRIVATE + UNSPECIFIED + MULTICAST + RESERVED)
def test_opening_one_range_opens_no_form_of_another(host: str) -> None:
    assert rule_for(Policy(ranges=(ip_network("10.77.0.0/16"), ip_network("fd77::/16"))), host) is not None


@pytest.mark.parametrize("port", [-1, 0, 1, 22, 25, 79, 81, 442, 444, 2375, 3128, 6379, 8080, 65_535, 65_616])
def test_a_port_that_nobody_opened_is_closed_for_any_host(port: int) -> None:
    for host in ("example.org", "8.8.8.8", "2606:4700::1111"):
        assert rule_for(OPEN_INTERNET, host, port) == "port"


def test_a_port_is_opened_beside_the_usual_ones() -> None:
    policy = read_policy(None, None, "8443, 22")
    assert [port for port in range(70_000) if policy.check_port(port) is None] == [22, 80, 443, 8443]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("example.org", "example.org"),
        ("EXAMPLE.org.", "example.org"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("B\u00dcCHER.example.", "xn--bcher-kva.example"),
        ("fa\u00df.example", "xn--fa-hia.example"),
        ("_dmarc.example.org", "_dmarc.example.org"),
        ("_dmarc\u3002example.org", "_dmarc.example.org"),
        ("8.8.8.8", ip_address("8.8.8.8")),
        ("0x08080808", ip_address("8.8.8.8")),
        ("[2606:4700::1111]", ip_address("2606:4700::1111")),
    ],
)
def test_what_is_public_passes_in_one_form(text: str, host: str | Address) -> None:
    assert read_host(text) == host
    assert rule_for(OPEN_INTERNET, text) is None


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        ("example.org", True),
        ("EXAMPLE.ORG.", True),
        ("www.example.org", False),
        ("example.org.evil.net", False),
        ("notexample.org", False),
        ("example.com", False),
        ("a.files.example.net", True),
        ("a.b.FILES.example.net.", True),
        ("files.example.net", False),
        ("notfiles.example.net", False),
        ("files.example.net.evil.net", False),
        ("b\u00fccher.example", True),
        ("xn--bcher-kva.example", True),
        ("8.8.8.8", False),
        ("134744072", False),
        ("2606:4700::1111", False),
        ("localhost", False),
    ],
)
def test_an_allow_list_opens_its_domains_and_nothing_else(host: str, *, is_open: bool) -> None:
    policy = read_policy("example.org *.files.example.net,b\u00fccher.example", None, None)
    assert (rule_for(policy, host) is None) is is_open


def test_a_name_on_the_allow_list_does_not_open_where_it_leads() -> None:
    policy = read_policy("example.org", None, None)
    assert rule_for(policy, "example.org") is None
    refusal = policy.check_address(ip_address("127.0.0.1"))
    assert refusal is not None and refusal.rule == "loopback-address"


def test_localhost_stays_closed_even_on_the_allow_list() -> None:
    assert rule_for(read_policy("a.localhost", None, None), "a.localhost") == "loopback-name"


def test_an_opened_range_is_reached_by_its_addresses_in_every_form() -> None:
    policy = read_policy(None, "192.168.7.0/24 fd77::/16", None)
    for host in ("192.168.7.9", "0xc0a80709", "::ffff:192.168.7.9", "fd77::1"):
        assert rule_for(policy, host) is None
    for host in ("192.168.8.9", "::ffff:192.168.8.9", "fd78::1"):
        assert rule_for(policy, host) == "private-address"


@pytest.mark.parametrize("opened", ["::/0", "::/1", "::/32"])
@pytest.mark.parametrize("inner", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "0.0.0.0"])
def test_a_range_of_ipv6_opens_no_ipv4_address_in_disguise(opened: str, inner: str) -> None:
    policy = read_policy(None, opened, None)
    for host in (f"::ffff:{inner}", f"64:ff9b::{inner}"):
        assert rule_for(policy, host) is not None
        assert policy.check_own(IPv6Address(host)) is not None


@pytest.mark.parametrize("text", ["::ffff:10.0.0.0/104", "::ffff:127.0.0.1", "64:ff9b::10.0.0.0/104"])
def test_a_range_of_disguised_addresses_is_refused_as_it_would_open_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="IPv4"):
        read_policy(None, text, None)


def test_the_servers_own_address_is_closed_until_its_range_is_opened() -> None:
    own = ip_address("8.8.8.8")
    refusal = OPEN_INTERNET.check_own(own)
    assert refusal is not None and refusal.rule == "own-address"
    assert read_policy(None, "8.8.8.8", None).check_own(own) is None


def test_a_refusal_says_what_is_closed_and_what_would_open_it() -> None:
    refused = {
        "8080": OPEN_INTERNET.check_port(8080),
        "example.com": read_policy("example.org", None, None).check_name("example.com"),
        "10.0.0.1": OPEN_INTERNET.check_address(ip_address("10.0.0.1")),
    }
    flags = {"8080": "--allow-port", "example.com": "--allow-domain", "10.0.0.1": "--allow-address"}
    for what, refusal in refused.items():
        assert isinstance(refusal, Refusal)
        assert what in refusal.text and flags[what] in refusal.text


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "*.",
        "*.*",
        "*.org",
        "org",
        "co.uk",
        "*.co.uk",
        "*.github.io",
        "*.internal",
        "*.xn--p1ai",
        "*.*.example.org",
        "a.*.example.org",
        "*example.org",
        "**.example.org",
        ".example.org",
        "\uff0a.example.org",
        "127.0.0.1",
        "*.127.0.0.1",
        "[::1]",
        "*.1",
        "localhost",
        "https://example.org",
        "example.org/",
        "example.org:443",
        "user@example.org",
    ],
)
def test_a_domain_that_is_none_or_too_wide_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_domain(text)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("addresses", "ports"),
    [
        ("10.0.0.0/33", None),
        ("example.org", None),
        ("10.0.0", None),
        ("10.0.0.1-9", None),
        (None, "0"),
        (None, "65536"),
        (None, "https"),
        (None, "-1"),
        (None, "\u0664\u0664\u0663"),
        (None, "80-90"),
    ],
)
def test_an_item_that_is_no_range_or_port_is_refused_by_name(
    addresses: str | None, ports: str | None
) -> None:
    with pytest.raises(ValueError) as caught:
        read_policy(None, addresses, ports)
    assert str(caught.value).startswith(str(addresses or ports))


INTERESTING = [
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24",
    "192.168.0.0/16 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4 8.0.0.0/8",
]


def near(one: Range) -> st.SearchStrategy[Address]:
    """Addresses in ``one`` and up to two beside its ends."""
    kind = type(one.network_address)
    last = 2**one.max_prefixlen - 1
    low, high = int(one.network_address), int(one.broadcast_address)
    inside = st.integers(low, high)
    edges = st.sampled_from([low - 2, low - 1, low, high, high + 1, high + 2])
    return st.one_of(inside, edges).map(lambda n: kind(min(max(n, 0), last)))


V4 = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.sampled_from(" ".join(INTERESTING).split()).map(ip_network).flatmap(near),
)
V6_RANGES = (
    "::/96 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2000::/3 2001::/23 2001::/32 2001:db8::/32"
)
V6_MORE = "2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8"
V6 = st.one_of(
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.sampled_from(f"{V6_RANGES} {V6_MORE}".split()).map(ip_network).flatmap(near),
)


def meant(address: Address) -> Address:
    """The IPv4 address inside a mapped or translated one; computed here, not by what is tested."""
    number = int(address)
    if address.version == 6 and (number >> 32 == 0xFFFF or number >> 32 == 0x64FF9B << 64):
        return IPv4Address(number & 0xFFFFFFFF)
    return address


@given(V4 | V6)
def test_what_is_allowed_ipaddress_calls_global(address: Address) -> None:
    if OPEN_INTERNET.check_address(address) is None:
        inner = meant(address)
        assert inner.is_global
        assert not inner.is_multicast
        assert not inner.is_private


@given(V4)
def test_a_mapped_or_translated_address_is_judged_as_the_one_inside(address: IPv4Address) -> None:
    plain = OPEN_INTERNET.check_address(address)
    for prefix in ("::ffff:", "64:ff9b::"):
        inner = OPEN_INTERNET.check_address(IPv6Address(f"{prefix}{address}"))
        assert (inner and inner.rule) == (plain and plain.rule)


def in_base(number: int, base: str) -> str:
    return {"d": f"{number}", "o": f"0{number:o}", "x": f"0x{number:x}", "X": f"0X{number:X}"}[base]


@given(V4, st.integers(1, 4), st.lists(st.sampled_from("doxX"), min_size=4, max_size=4))
def test_any_number_form_is_read_as_the_address_that_it_means(
    address: IPv4Address, count: int, bases: list[str]
) -> None:
    octets = list(address.packed)
    parts = [*octets[: count - 1], int.from_bytes(bytes(octets[count - 1 :]), "big")]
    text = ".".join(in_base(part, base) for part, base in zip(parts, bases, strict=False))
    assert read_host(text) == address


@given(st.text(max_size=255) | st.text("0123456789abcdefxX.:[]%@/-_*\u3002\uff0e\uff11", max_size=40))
def test_any_text_is_a_host_in_one_form_or_none(text: str) -> None:
    host = read_host(text)
    if host is not None:
        assert read_host(str(host)) == host
    if isinstance(host, str):
        assert host.isascii() and host == host.lower() and not host.endswith(".")
        with pytest.raises(ValueError):
            ip_address(host)


@given(V4 | V6, st.sampled_from(["10.0.0.0/8", "192.168.0.0/16", "fd00::/8", "fe80::/10", "8.0.0.0/8"]))
def test_an_opened_range_opens_exactly_itself(address: Address, text: str) -> None:
    opened = ip_network(text)
    expected = meant(address) in opened or OPEN_INTERNET.check_address(address) is None
    assert (Policy(ranges=(opened,)).check_address(address) is None) is expected

"""What clients and models are told of the network that scripts have."""

from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings

SHOWN_CHARACTERS = 80
"""Of the names of domains; what is told of a tool has a bound."""

_REACH = {
    Network.NONE: "have no network",
    Network.FULL: "have this machine's network, its own services and the local network included",
}


def reach_in_words(settings: Settings) -> str:
    """After "Scripts": what they reach."""
    if settings.network is not Network.FILTERED:
        return _REACH[settings.network]
    domains = (settings.allow_domain or "").replace(",", " ").split()
    shown: list[str] = []
    while len(shown) < len(domains) and len(", ".join([*shown, domains[len(shown)]])) <= SHOWN_CHARACTERS:
        shown.append(domains[len(shown)])
    where = ", ".join(shown) or (_some(len(domains)) if domains else "the public Internet")
    if shown and (more := len(domains) - len(shown)):
        where += f" and {_some(more)} more"
    return f"reach {where} by http and https (HTTP_PROXY is set), no local network"


def _some(count: int) -> str:
    return "1 domain" if count == 1 else f"{count} domains"

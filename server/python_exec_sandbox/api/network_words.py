"""What clients and models are told of the network that scripts have."""

from python_exec_sandbox.setting_values import Network
from python_exec_sandbox.settings import Settings

SHOWN_DOMAINS = 3

_REACH = {
    Network.NONE: "have no network",
    Network.FULL: "have this machine's network, its own services and the local network included",
}


def reach_in_words(settings: Settings) -> str:
    """After "Scripts": what they reach."""
    if settings.network is not Network.FILTERED:
        return _REACH[settings.network]
    domains = (settings.allow_domain or "").replace(",", " ").split()
    where = ", ".join(domains[:SHOWN_DOMAINS]) or "the public Internet"
    if (more := len(domains) - SHOWN_DOMAINS) > 0:
        where += f" and {more} domains more"
    return f"reach {where} by http and https (HTTP_PROXY is set), no local network"

"""The variables that uv and a script get: an allow-list. Pure."""

from collections.abc import Mapping
from pathlib import Path

SCRIPT_NAMES = ("USER", "LOGNAME", "TZ", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Taken from the server's environment for the script as well: who and where it is, whom it trusts."""

UV_NAMES = (
    *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_INDEX_STRATEGY", "UV_KEYRING_PROVIDER", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"),
    *("UV_OFFLINE", "UV_HTTP_TIMEOUT", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE_NEWER", "NETRC"),
    *("SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Taken for uv alone: where packages come from. They may hold credentials, so the script's process doesn't
get them (with no sandbox around it, it could still read them from uv's)."""

UV_INDEX_PREFIX = "UV_INDEX_"
"""Of the variables with an index's credentials, which carry its name."""

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

UTF8_LOCALE = "C.UTF-8"


def script_environment(server: Mapping[str, str], home: str, temporary: str) -> dict[str, str]:
    """All that a script finds in ``os.environ``, before what uv adds."""
    locale = server.get("LC_ALL") or server.get("LANG") or ""
    return {
        "HOME": home,
        "TMPDIR": temporary,
        "PATH": PATH,
        "LANG": locale if locale.upper().replace("-", "").endswith("UTF8") else UTF8_LOCALE,
        # A script that is killed must not lose what it printed.
        "PYTHONUNBUFFERED": "1",
    } | {name: server[name] for name in SCRIPT_NAMES if server.get(name)}


def uv_environment(server: Mapping[str, str], cache: str, config: str | None) -> dict[str, str]:
    """What uv gets on top of that. Its cache is the person's own, so that it works without a network; files
    are copied out of it, because a script that changed a hard link would change the cache."""
    taken = {
        name: value
        for name, value in server.items()
        if value and (name in UV_NAMES or name.startswith(UV_INDEX_PREFIX))
    }
    fixed = {
        "UV_CACHE_DIR": cache,
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return taken | fixed | ({"UV_CONFIG_FILE": config} if config else {})


def config_candidates(server: Mapping[str, str]) -> list[Path]:
    """Where the person's own settings of uv may lie; uv itself would look in the script's empty home."""
    if named := server.get("UV_CONFIG_FILE"):
        return [Path(named)]
    if base := server.get("XDG_CONFIG_HOME"):
        return [Path(base, "uv", "uv.toml")]
    home = server.get("HOME")
    return [Path(home, ".config", "uv", "uv.toml")] if home else []

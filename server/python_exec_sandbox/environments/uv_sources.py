"""Reads where packages come from: the server's settings first, then uv's variables, its files, and a netrc.

Only what is listed here is taken over, and nothing of a project's folder: which folder a client starts its
server in says nothing about what the person wants.

=====================  ==================================================================================
from                   what
=====================  ==================================================================================
variables              ``UV_DEFAULT_INDEX UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL UV_FIND_LINKS
                       UV_NO_INDEX UV_INDEX_STRATEGY UV_EXCLUDE_NEWER UV_INSECURE_HOST UV_SYSTEM_CERTS
                       UV_NATIVE_TLS UV_HTTP_TIMEOUT UV_HTTP_RETRIES UV_INDEX_<NAME>_USERNAME
                       UV_INDEX_<NAME>_PASSWORD UV_CONFIG_FILE UV_NO_CONFIG NETRC SSL_CERT_DIR`` and
                       ``HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY`` in either case
user's, system's       ``index index-url extra-index-url find-links no-index index-strategy exclude-newer
``uv.toml``            allow-insecure-host http-proxy https-proxy no-proxy system-certs native-tls``, also
                       those below ``[pip]``
netrc                  credentials for the hosts of the indexes found
=====================  ==================================================================================
"""

import netrc
import ssl
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from python_exec_sandbox.environments.indexes import Index, Indexes, with_credentials
from python_exec_sandbox.errors import ConfigurationError

MAX_FILE_BYTES = 1024 * 1024
"""More than this is no settings file."""

MAX_CERTIFICATES_BYTES = 2 * 1024 * 1024
"""The authorities that the world trusts have a quarter of a megabyte."""

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
TIMEOUTS = ("UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES")
INDEX_OPTIONS = ("format", "authenticate", "ignore-error-codes")

_HERE_ONLY = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the server's own settings say of it; they come before everything else."""

    index_url: str | None = None
    extra_index_url: str | None = None
    exclude_newer: str | None = None
    has_ca_bundle: bool = False


def read_indexes(chosen: Chosen, variables: Mapping[str, str], home: Path | None) -> Indexes:
    """Where packages come from for a server with the settings ``chosen``. Reads files.

    Raises:
        ConfigurationError: one of uv's files can't be understood; nothing of its content is in the text.
    """
    notes: list[str] = []
    found = [_of_settings(chosen), _of_variables(variables, notes)]
    found += [_of_file(path, notes) for path in _config_files(variables, home)]
    merged = _merged(found)
    named = [_with_variables(index, variables) for index in merged.indexes]
    login = _netrc(variables, home, notes)
    indexes = tuple(_with_netrc(index, login) for index in named)
    certificates = "" if chosen.has_ca_bundle else _certificates(variables, merged.wants_system, notes)
    notes += _of_loopback(merged.proxies)
    return Indexes(
        indexes=indexes,
        find_links=merged.find_links,
        no_index=merged.no_index,
        strategy=merged.strategy,
        exclude_newer=merged.exclude_newer,
        insecure_hosts=merged.insecure_hosts,
        proxies=merged.proxies,
        timeouts=tuple((name, variables[name]) for name in TIMEOUTS if variables.get(name, "").isdigit()),
        certificates=certificates,
        notes=tuple(dict.fromkeys(notes)),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What one source says; of single values the first source that has one counts, lists add up."""

    indexes: tuple[Index, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    strategy: str = ""
    exclude_newer: str = ""
    insecure_hosts: tuple[str, ...] = ()
    proxies: tuple[tuple[str, str], ...] = ()
    wants_system: bool = False


def _merged(found: list[_Found]) -> _Found:
    indexes: list[Index] = []
    for index in (index for one in found for index in one.indexes):
        if index.is_default and any(other.is_default for other in indexes):
            continue  # of several defaults the first counts
        if all(index.url != other.url for other in indexes):
            indexes.append(index)
    # uv asks the default index last, wherever it is named.
    proxies: dict[str, tuple[str, str]] = {}
    for name, value in (pair for one in found for pair in one.proxies):
        proxies.setdefault(name.upper(), (name, value))
    return _Found(
        indexes=tuple(indexes),
        find_links=tuple(dict.fromkeys(link for one in found for link in one.find_links)),
        no_index=any(one.no_index for one in found),
        strategy=next((one.strategy for one in found if one.strategy), ""),
        exclude_newer=next((one.exclude_newer for one in found if one.exclude_newer), ""),
        insecure_hosts=tuple(dict.fromkeys(host for one in found for host in one.insecure_hosts)),
        proxies=tuple(proxies.values()),
        wants_system=any(one.wants_system for one in found),
    )


def _of_settings(chosen: Chosen) -> _Found:
    extra = (Index(url) for url in (chosen.extra_index_url or "").split())
    default = [Index(chosen.index_url, is_default=True)] if chosen.index_url else []
    return _Found(indexes=(*extra, *default), exclude_newer=chosen.exclude_newer or "")


def _of_variables(variables: Mapping[str, str], notes: list[str]) -> _Found:
    def get(name: str) -> str:
        return variables.get(name, "").strip()

    indexes = [_named_index(text) for text in get("UV_INDEX").split()]
    indexes += [Index(url) for url in get("UV_EXTRA_INDEX_URL").split()]
    if default := get("UV_DEFAULT_INDEX") or get("UV_INDEX_URL"):
        indexes.append(replace(_named_index(default), is_default=True))
    return _Found(
        indexes=tuple(index for index in indexes if _is_web(index.url, "an index of uv's variables", notes)),
        find_links=_web_links(get("UV_FIND_LINKS").replace(",", " ").split(), "UV_FIND_LINKS", notes),
        no_index=_is_true(get("UV_NO_INDEX")),
        strategy=get("UV_INDEX_STRATEGY"),
        exclude_newer=get("UV_EXCLUDE_NEWER"),
        insecure_hosts=tuple(get("UV_INSECURE_HOST").replace(",", " ").split()),
        proxies=tuple(
            (name, variables[name])
            for upper in PROXIES
            for name in (upper.lower(), upper)
            if variables.get(name)
        ),
        wants_system=_is_true(get("UV_SYSTEM_CERTS")) or _is_true(get("UV_NATIVE_TLS")),
    )


def _of_file(path: Path, notes: list[str]) -> _Found:
    """What uv's settings file at ``path`` says."""
    table = _read_toml(path)
    pip = table.get("pip", {})
    below = pip if isinstance(pip, dict) else {}
    # For the commands that the builder uses uv prefers what stands below [pip].
    return _merged([_of_table(below, path, notes), _of_table(table, path, notes)])


def _of_table(table: Mapping[str, Any], path: Path, notes: list[str]) -> _Found:
    def text(key: str) -> str:
        value = table.get(key)
        return value if isinstance(value, str) else ""

    def texts(key: str) -> list[str]:
        value = table.get(key)
        return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []

    where = f"an index of {path.name}"
    listed = table.get("index")
    indexes = [_table_index(one) for one in (listed if isinstance(listed, list) else [])]
    indexes += [Index(url) for url in texts("extra-index-url")]
    indexes += [Index(text("index-url"), is_default=True)] if text("index-url") else []
    return _Found(
        indexes=tuple(index for index in indexes if index is not None and _is_web(index.url, where, notes)),
        find_links=_web_links(texts("find-links"), f"find-links of {path.name}", notes),
        no_index=table.get("no-index") is True,
        strategy=text("index-strategy"),
        exclude_newer=str(table.get("exclude-newer", "")),  # TOML has dates
        insecure_hosts=tuple(texts("allow-insecure-host")),
        proxies=tuple(_proxies(table)),
        wants_system=table.get("system-certs") is True or table.get("native-tls") is True,
    )


def _proxies(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("http-proxy", "https-proxy", "no-proxy"):
        value = table.get(key)
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(text, str) and text:
            yield key.upper().replace("-", "_"), text


def _table_index(table: object) -> Index | None:
    """One ``[[index]]``; explicit ones are only for ``sources``, which we don't take over."""
    if not isinstance(table, dict) or not isinstance(table.get("url"), str) or table.get("explicit") is True:
        return None
    name = table.get("name")
    options = tuple((key, table[key]) for key in INDEX_OPTIONS if isinstance(table.get(key), str | list))
    return Index(table["url"], name if isinstance(name, str) else "", table.get("default") is True, options)


def _named_index(text: str) -> Index:
    """``name=url``, or an address alone."""
    name, separator, url = text.partition("=")
    return Index(url, name) if separator and "/" not in name and ":" not in name else Index(text)


def _with_variables(index: Index, variables: Mapping[str, str]) -> Index:
    """With the credentials that uv finds in variables by the index's name."""
    if not index.name:
        return index
    name = "".join(each.upper() if each.isalnum() else "_" for each in index.name)
    user, password = (variables.get(f"UV_INDEX_{name}_{what}", "") for what in ("USERNAME", "PASSWORD"))
    return with_credentials(index, user, password)


def _with_netrc(index: Index, login: netrc.netrc | None) -> Index:
    host = urlsplit(index.url).hostname
    found = login.authenticators(host) if login is not None and host else None
    return with_credentials(index, found[0] or "", found[2] or "") if found else index


def _netrc(variables: Mapping[str, str], home: Path | None, notes: list[str]) -> netrc.netrc | None:
    named = variables.get("NETRC")
    path = Path(named) if named else home / ".netrc" if home else None
    if path is None or not path.is_file():
        return None
    try:
        return netrc.netrc(path)
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError):
        notes.append(f"{path} can't be read as a netrc file; no credentials were taken from it.")
        return None


def _config_files(variables: Mapping[str, str], home: Path | None) -> list[Path]:
    """Settings files of uv that exist, the user's before the system's."""
    if named := variables.get("UV_CONFIG_FILE"):
        return [Path(named)]
    if _is_true(variables.get("UV_NO_CONFIG", "")):
        return []
    own = variables.get("XDG_CONFIG_HOME")
    base = Path(own) if own else home / ".config" if home else None
    user = [base / "uv" / "uv.toml"] if base else []
    shared = [Path(part) for part in variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if part]
    system = [folder / "uv" / "uv.toml" for folder in [*shared, Path("/etc")]]
    present = [path for path in system if path.is_file()]
    return [path for path in user if path.is_file()] + present[:1]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(
                f"uv's settings file {path} is larger than 1 MiB; nothing was installed."
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"uv's settings file {path} can't be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # From None: what is wrong may be a credential.
        place = str(error).rpartition("(at ")[2].rstrip(")")
        raise ConfigurationError(f"uv's settings file {path} is not valid TOML ({place[:60]}).") from None


def _certificates(variables: Mapping[str, str], wants_system: bool, notes: list[str]) -> str:  # noqa: FBT001  # what was found
    """PEM texts of ``SSL_CERT_DIR``, or of this machine's own bundle where uv is told to use that."""
    if (named := variables.get("SSL_CERT_DIR")) and (folder := Path(named)).is_dir():
        return _joined(path for path in sorted(folder.iterdir()) if path.suffix in {".pem", ".crt", ".0"})
    if not wants_system:
        return ""
    bundle = ssl.get_default_verify_paths().cafile
    if not bundle:
        notes.append("This machine's own certificates are in no file; name one with --ca-bundle.")
        return ""
    return _joined([Path(bundle)])


def _joined(paths: Iterable[Path]) -> str:
    texts: dict[str, None] = {}
    size = 0
    for path in paths:
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # a link that leads nowhere
        size += len(text)
        if "-----BEGIN CERTIFICATE-----" in text and size <= MAX_CERTIFICATES_BYTES:
            texts[text] = None
    return "\n".join(texts)


def _web_links(links: list[str], where: str, notes: list[str]) -> tuple[str, ...]:
    return tuple(link for link in links if _is_web(link, where, notes))


def _is_web(url: str, where: str, notes: list[str]) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in {"http", "https"} and parts.hostname and url.isprintable():
        return True
    notes.append(
        f"{where} is not an http(s) address and was left out: installs see no files of this machine."
    )
    return False


def _of_loopback(proxies: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in proxies:
        if not name.upper().startswith("NO_") and urlsplit(value).hostname in _HERE_ONLY:
            yield f"{name} names this machine's loopback, which containers can't reach; use an address that they can."


def _is_true(text: str) -> bool:
    return text.lower() in {"1", "true", "t", "yes", "y", "on"}

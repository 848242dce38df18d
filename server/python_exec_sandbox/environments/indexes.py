"""Where packages come from, as text for uv and without secrets for everyone else. Pure."""

import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from python_exec_sandbox.model.environment import InstallerSettings
from python_exec_sandbox.script.cutoffs import older

HIDDEN = "****"

SHORTEST_SECRET = 6
"""Shorter ones could be part of any word; in an address they are hidden all the same."""

_CREDENTIALS = re.compile(r"(?<=://)[^\s/@?#]+@")


@dataclass(frozen=True, slots=True)
class Index:
    """One index. ``options`` are further keys of uv's ``[[index]]`` with their values."""

    url: str = field(repr=False)
    name: str = ""
    is_default: bool = False
    options: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Indexes:
    """All that decides where packages come from, in the order in which uv looks.

    ``proxies`` are variables such as ``HTTPS_PROXY``; ``certificates`` are PEM texts to trust.
    ``notes`` are sentences about settings that were found and can't be followed.
    """

    indexes: tuple[Index, ...] = ()
    find_links: tuple[str, ...] = field(default=(), repr=False)
    no_index: bool = False
    strategy: str = ""
    exclude_newer: str = ""
    insecure_hosts: tuple[str, ...] = ()
    proxies: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeouts: tuple[tuple[str, str], ...] = ()
    certificates: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    def for_uv(self) -> InstallerSettings:
        """The same as uv reads it; with all credentials."""
        return InstallerSettings(self._config(), (*self.proxies, *self.timeouts), self.certificates)

    def not_newer(self, cutoff: str, now: datetime) -> "Indexes":
        """The same with a further cutoff; the older one counts."""
        return replace(self, exclude_newer=older(self.exclude_newer, cutoff, now))

    def public(self) -> "Indexes":
        """The same without anything that has credentials, for where code of packages runs. An index that wants some
        is asked all the same: to leave it out would take packages of the same names from others."""
        return replace(
            self,
            indexes=tuple(replace(index, url=_without_user(index.url)) for index in self.indexes),
            find_links=tuple(map(_without_user, self.find_links)),
            proxies=tuple((name, value) for name, value in self.proxies if "@" not in value),
        )

    def hide(self, text: str) -> str:
        """``text`` without any credentials that are part of these settings, and without any in addresses."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return without_credentials(text)

    def _config(self) -> str:
        lines = []
        if self.no_index:
            lines.append("no-index = true")
        if self.find_links:
            lines.append(f"find-links = {_toml(list(self.find_links))}")
        if self.strategy:
            lines.append(f"index-strategy = {_toml(self.strategy)}")
        if self.exclude_newer:
            lines.append(f"exclude-newer = {_toml(self.exclude_newer)}")
        if self.insecure_hosts:
            lines.append(f"allow-insecure-host = {_toml(list(self.insecure_hosts))}")
        for index in self.indexes:
            lines += ["[[index]]", f"url = {_toml(index.url)}"]
            if index.name:
                lines.append(f"name = {_toml(index.name)}")
            if index.is_default:
                lines.append("default = true")
            lines += [f"{key} = {_toml(value)}" for key, value in index.options]
        return "".join(line + "\n" for line in lines)

    def _secrets(self) -> set[str]:
        addresses = [index.url for index in self.indexes]
        addresses += self.find_links
        addresses += [value for _, value in self.proxies]
        found: set[str] = set()
        for address in addresses:
            name, password = credentials_of(address)
            # Where there is no password, the name is a token.
            secret = password or name
            found |= {secret, unquote(secret)}
        return {secret for secret in found if len(secret) >= SHORTEST_SECRET}


def credentials_of(url: str) -> tuple[str, str]:
    """Name and password in ``url`` as they are written there; empty where there are none."""
    place = urlsplit(url).netloc
    if "@" not in place:
        return "", ""
    name, _, password = place.rpartition("@")[0].partition(":")
    return name, password


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def with_credentials(index: Index, name: str, password: str) -> Index:
    """``index`` with these, unless it has some."""
    parts = urlsplit(index.url)
    if "@" in parts.netloc or not (name or password):
        return index
    written = quote(name, safe="") + (f":{quote(password, safe='')}" if password else "")
    return replace(index, url=urlunsplit(parts._replace(netloc=f"{written}@{parts.netloc}")))


def without_credentials(text: str) -> str:
    """``text`` with those in addresses left out; for words that people or models read."""
    return _CREDENTIALS.sub(f"{HIDDEN}@", text)


def _toml(value: object) -> str:
    """``value`` (text, number, truth or a list of these) in TOML, whose strings have the escapes of JSON."""
    return json.dumps(value, ensure_ascii=False)

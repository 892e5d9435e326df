"""Where a webhook goes: its URL, parsed once.

The parts are what is dialled and sent, and nothing parses the text a second time: two parsers that
disagree about where the host ends are how such checks are bypassed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Literal, TypeAlias

from sa_outbox.errors import ConfigError

from .addresses import Address, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable

Ports: TypeAlias = frozenset[int] | Literal["any"]

LONGEST = 2000
_PORTS = {"https": 443, "http": 80}
PORTS = frozenset(_PORTS.values())
"""Allowed ports by default: other ports are used for other things than HTTP."""
_SEEN = re.compile(r"[!-~]+")
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\\]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#\\]*)?(?P<query>\?[^#\\]*)?"
)
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_DOTS = re.compile(r"(\.|%2[eE]){1,2}")


@dataclass(frozen=True, slots=True)
class Target:
    scheme: str
    host: str
    """A name, or an address without brackets."""
    port: int
    path: str
    """Includes the query."""
    address: Address | None
    """If the host is an address."""

    @property
    def host_header(self) -> str:
        shown = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return shown if self.port == _PORTS[self.scheme] else f"{shown}:{self.port}"


def parse_ports(given: Iterable[int] | Literal["any"]) -> Ports:
    """Raises ``ConfigError`` for an invalid port."""
    if given == "any":
        return "any"
    found = () if isinstance(given, (str, int)) else tuple(given)
    if not found or not all(type(each) is int and 0 < each < 65536 for each in found):
        raise ConfigError(f'ports are numbers, like (443, 8443), or "any": {given!r}')
    return frozenset(found)


def parse(url: str, *, allow_http: bool, ports: Ports = PORTS) -> Target:
    """Raises ``ConfigError``. Shows no more of the URL than its host: the rest may contain a
    secret."""
    if not isinstance(url, str) or not _SEEN.fullmatch(url) or len(url) > LONGEST:
        raise ConfigError(
            f"the address of a webhook has up to {LONGEST} characters of ASCII, without spaces or "
            "control characters; a name with others is written as xn--..."
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigError(
            "the address of a webhook is https://host/path, without a user, a password or a #"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower()
    if scheme != "https" and not (scheme == "http" and allow_http):
        hint = "; allow_http=True permits it" if scheme == "http" else ""
        raise ConfigError(f"a webhook is sent by https, not by {scheme}{hint}")
    address = _address(host)
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    if not 0 < port < 65536:
        raise ConfigError(f"the address of a webhook has the port {port}")
    if ports != "any" and port not in ports:
        known = ", ".join(map(str, sorted(ports)))
        raise ConfigError(
            f"webhooks are sent to the ports {known}, not {port}; ports= permits more"
        )
    path = found["path"] or "/"
    if any(_DOTS.fullmatch(each) for each in path.split("/")):
        raise ConfigError("the path of a webhook has a part that is . or ..")
    shown = str(address) if address is not None else host
    return Target(scheme, shown, port, path + (found["query"] or ""), address)


def _address(host: str) -> Address | None:
    if host.startswith("["):
        try:
            return parse_address(host[1:-1])
        except ValueError:
            raise ConfigError(f"the host of a webhook is not a valid address: {host}") from None
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(each) for each in labels):
        raise ConfigError(f"the host of a webhook is not a valid name: {host}")
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    try:
        # 127.1, 0x7f000001 and 017700000001 are addresses too, for a resolver.
        return IPv4Address(host)
    except ValueError:
        raise ConfigError(f"the host of a webhook is neither name nor address: {host}") from None

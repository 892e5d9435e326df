"""Which addresses a webhook may be sent to: the public Internet, and what is explicitly allowed.

Our own list: ``ipaddress.is_global`` is True for addresses that lead inside. 64:ff9b::/96 is
translated to IPv4 by the network, ::7f00:1 is an old notation of 127.0.0.1, and multicast reaches
many.
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, TypeAlias

from sa_outbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

DENIED_4: tuple[IPv4Network, ...] = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, and the inside of some clouds
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's wire server: a public address that leads to the host
        "169.254.0.0/16",  # link-local: the metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocols
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
OPEN_6 = IPv6Network("2000::/3")
"""The only allocated part of IPv6: everything else is denied without a list."""
DENIED_6: tuple[IPv6Network, ...] = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # IETF protocols: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "2620:4f:8000::/48",  # AS112
        "2002::/16",  # 6to4: an IPv4 address inside, and relays that are nobody's
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4 written as IPv6: the machine itself unpacks it."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""The network's gateway unpacks it; DNS64 returns it in IPv6-only networks. Its local counterpart
64:ff9b:1::/48 is meant to lead inside, and is denied with everything else."""


def parse_networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Raises ``ConfigError`` for invalid networks."""
    if isinstance(given, str):
        raise ConfigError(f'allow must be a tuple of networks, like ("10.1.0.0/16",): {given!r}')
    try:
        return tuple(ip_network(each) for each in given)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"allow has an invalid network: {error}") from error


def parse_address(text: str) -> Address:
    """Raises ``ValueError``, also for an address with a zone: that is an interface of this
    machine."""
    if "%" in text:
        raise ValueError(f"an address with a zone: {text!r}")
    return ip_address(text)


def is_allowed(address: Address, allow: tuple[Network, ...]) -> bool:
    """Whether it is in one of the explicitly allowed networks."""
    address = _unmapped(address)
    return any(address in network for network in allow)


def is_permitted(address: Address, allow: tuple[Network, ...] = ()) -> bool:
    """Whether a webhook may be sent there. If an address embeds another one, that one counts."""
    address = _unmapped(address)
    if is_allowed(address, allow):
        return True
    if isinstance(address, IPv6Address) and address in _NAT64:
        return is_permitted(_last_four(address))
    if isinstance(address, IPv4Address):
        return not any(address in network for network in DENIED_4)
    return address in OPEN_6 and not any(address in network for network in DENIED_6)


def _unmapped(address: Address) -> Address:
    if isinstance(address, IPv6Address) and address in _MAPPED:
        return _last_four(address)
    return address


def _last_four(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFFFFFF)

"""Where a request really came from: the socket's address, or what a trusted proxy reports.

Addresses come without a zone (``fe80::1%eth0`` is ``fe80::1``): it names an interface of one host, and means nothing
where the event is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from penstock.sources.http.access.auth_tokens import Headers

MAX_PROXIES = 64
"""A longer chain of proxies is forged."""

Address = IPv4Address | IPv6Address


class ClientAddress:
    """Reads the client's address of a request. A forwarding header counts only when a trusted proxy sent it."""

    def __init__(self, trusted_proxies: Sequence[str]) -> None:
        self._networks = [ip_network(text, strict=False) for text in trusted_proxies]
        self.is_trusted = lru_cache(maxsize=4096)(self._in_networks)
        """Whether an address is a trusted proxy's."""

    def of(self, peer: str, headers: Headers) -> str:
        """``peer`` is the socket's ``address:port``; IPv6 comes in brackets."""
        host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
        if not self._networks or not self.is_trusted(host):
            return host
        # Several lines are one list: a proxy may add its own line to those that a client forged. Empty elements of a
        # list do not count (RFC 9110, 5.6.1).
        forwarded = ",".join(headers.get_all("x-forwarded-for")).rsplit(",", MAX_PROXIES)[-MAX_PROXIES:]
        if chain := [text for text in forwarded if text.strip()]:
            return self._last_untrusted(chain, host)
        real_lines = headers.get_all("x-real-ip")
        real = _parse(real_lines[-1]) if real_lines else None
        return str(real) if real is not None else host

    def _last_untrusted(self, chain: Sequence[str], host: str) -> str:
        # Every proxy appends its peer, so only the part right of the last untrusted address can be trusted.
        for text in reversed(chain):
            address = _parse(text)
            if address is None:
                return host
            host = str(address)
            if not self.is_trusted(host):
                return host
        return host

    def _in_networks(self, host: str) -> bool:
        address = _parse(host)
        return address is not None and any(address in network for network in self._networks)


def _parse(text: str) -> Address | None:
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))  # the number has no zone
    return address

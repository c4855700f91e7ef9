"""What MaxMind databases know about an IP address, under the names used in events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

from penstock.steps.lookup.answer_memory import Fact

Address = IPv4Address | IPv6Address
Place = tuple[str | int, ...]


class Database(Protocol):
    def get(self, address: Address) -> object:
        """The record of the network that the address is in, or ``None``. Never raises."""
        ...


TEXTS: Mapping[str, tuple[Place, ...]] = {
    "continent": (("continent", "code"),),
    "country": (("country", "iso_code"),),
    "country_name": (("country", "names", "en"),),
    "region": (("subdivisions", 0, "iso_code"),),
    "region_name": (("subdivisions", 0, "names", "en"),),
    "city": (("city", "names", "en"),),
    "zip": (("postal", "code"),),
    "timezone": (("location", "time_zone"),),
    "autonomous_system_organization": (
        ("autonomous_system_organization",),
        ("traits", "autonomous_system_organization"),
    ),
    "isp": (("isp",), ("traits", "isp")),
    "organization": (("organization",), ("traits", "organization")),
    "connection_type": (("connection_type",), ("traits", "connection_type")),
    "domain": (("domain",), ("traits", "domain")),
}
NUMBERS: Mapping[str, tuple[Place, ...]] = {
    "latitude": (("location", "latitude"),),
    "longitude": (("location", "longitude"),),
    "accuracy_radius": (("location", "accuracy_radius"),),
    "autonomous_system_number": (("autonomous_system_number",), ("traits", "autonomous_system_number")),
}
"""Where each key is in a database's record, by the layout of MaxMind's City, Country, ASN, ISP and Enterprise."""


class AddressFacts:
    """Combines the facts of several databases; if two know the same thing, the first one counts."""

    keys = (
        "continent", "country", "country_name", "region", "region_name", "city", "zip", "latitude", "longitude",
        "accuracy_radius", "timezone", "autonomous_system_number", "autonomous_system_organization", "isp",
        "organization", "connection_type", "domain",
    )  # fmt: skip
    longest = 128

    def __init__(self, databases: Sequence[Database]) -> None:
        self._databases = tuple(databases)

    def about(self, text: str) -> Mapping[str, Fact]:
        address = address_in(text)
        facts: dict[str, Fact] = {}
        if address is None:
            return facts
        for database in self._databases:
            record = database.get(address)
            for key, fact in _facts(record):
                facts.setdefault(key, fact)
        return facts


def address_in(text: str) -> Address | None:
    """The address that a text is: blanks around it, brackets, a port and a zone do not matter.

    An IPv4 address that is written as an IPv6 one (``::ffff:192.0.2.1``) is the IPv4 address.
    """
    bare = text.strip()
    if bare.startswith("["):
        bare, _, port = bare[1:].partition("]")
        if port and not _is_port(port):
            return None
    elif bare.count(":") == 1:
        bare, _, port = bare.partition(":")
        if not _is_port(":" + port):
            return None
    try:
        address = ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address
    return address


def _is_port(text: str) -> bool:
    digits = text[1:]
    return text[0] == ":" and len(digits) <= 5 and digits.isascii() and digits.isdigit()


def _facts(record: object) -> list[tuple[str, Fact]]:
    """Only values of the expected type: a column never changes its type because a database is odd."""
    if not isinstance(record, dict):
        return []
    found: list[tuple[str, Fact]] = []
    for key, places in TEXTS.items():
        text = _first(record, places)
        if isinstance(text, str) and text:
            found.append((key, text))
    for key, places in NUMBERS.items():
        number = _first(record, places)
        if isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number):
            found.append((key, number))
    return found


def _first(record: object, places: Sequence[Place]) -> object:
    for place in places:
        value = _at(record, place)
        if value is not None:
            return value
    return None


def _at(value: object, place: Place) -> object:
    for step in place:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
